#!/usr/bin/env bash
# goftests 0.3.0: `multinomial_goodness_of_fit`, Pearson's chi-squared test, of the counts of a fair coin.
# Guess: the p-value of `scipy.stats.chisquare`: 5% of fair coins are rejected at the level 0.05.
# Seen: 17% are: 520 heads in 1,000 have a p-value of 0.07 in place of 0.21. Each term is divided by n p (1 - p) in place of n p: the statistic is
# twice Pearson's for two categories, for three 1.5 times.
. "$(dirname "$0")/_packages.sh" goftests==0.3.0 numpy==2.1.3 scipy==1.16.3
"$python" - 2>/dev/null <<'PY'
import numpy as np
from goftests import multinomial_goodness_of_fit
from scipy.stats import binomtest, chisquare

seen = multinomial_goodness_of_fit([0.5, 0.5], [520, 480], 1000)
print(f"520 heads of 1,000: {seen:.3f} (SciPy {chisquare([520, 480]).pvalue:.3f}, exact {binomtest(520, 1000).pvalue:.3f})")
random, share = np.random.default_rng(0), {}
for k in (2, 3, 10):
    p = np.ones(k) / k
    draws = random.multinomial(3000, p, size=2000)
    share[k] = np.mean([[multinomial_goodness_of_fit(p, c, 3000) < 0.05, chisquare(c).pvalue < 0.05] for c in draws], axis=0)
    print(f"{k} categories: {share[k][0]:.1%} rejected at the level 0.05 (SciPy {share[k][1]:.1%})")
raise SystemExit(not (0.06 < seen < 0.09 and 0.13 < share[2][0] < 0.21 and 0.03 < share[2][1] < 0.07))
PY
