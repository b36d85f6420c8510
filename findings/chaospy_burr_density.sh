#!/usr/bin/env bash
# chaospy 4.3.21: `Burr(2, 3)`, a Burr distribution of type XII.
# Guess: `pdf` is the derivative of `cdf` and integrates to 1.
# Seen: `cdf` and draws are right; `pdf` has x to the power of -3 in place of 1: 19.7 in place of 1.23 at 0.5, and no finite integral.
. "$(dirname "$0")/_packages.sh" chaospy==4.3.21 numpy==2.1.3 scipy==1.16.3 setuptools==75.8.0
"$python" - 2>/dev/null <<'PY'
import chaospy
from scipy.stats import burr12

law = chaospy.Burr(2, 3)
slope, pdf = float(law.cdf(0.5001) - law.cdf(0.4999)) / 2e-4, float(law.pdf(0.5))
print(f"at 0.5: pdf {pdf:.3f}, slope of cdf {slope:.3f}, SciPy's density {burr12(2, 3).pdf(0.5):.3f}")
raise SystemExit(not (abs(slope - burr12(2, 3).pdf(0.5)) < 1e-3 and abs(pdf / slope - 16) < 0.01))
PY
