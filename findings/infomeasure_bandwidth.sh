#!/usr/bin/env bash
# infomeasure 0.6.3: `bandwidth` of its kernel estimators.
# Guess: a width in units of the data, whatever the kernel: data and width times ten add log 10 to an entropy.
# Seen: so with the box kernel. With the Gaussian one it is a factor of the data's own spread (SciPy's `bw_method`): data times ten at the same
# `bandwidth` add log 10, and with ten times the bandwidth the entropy is 0.7 too large.
. "$(dirname "$0")/_packages.sh" infomeasure==0.6.3 numpy==2.4.6 scipy==1.17.1
"$python" - <<'PY'
import numpy as np
import infomeasure

x = np.random.default_rng(0).normal(size=1000)
entropy = lambda k, data, width: float(infomeasure.entropy(data, approach="kernel", kernel=k, bandwidth=width))
gained = {(k, times): entropy(k, 10 * x, 0.3 * times) - entropy(k, x, 0.3) for k in ("box", "gaussian") for times in (10, 1)}
print(f"log 10 = {np.log(10):.3f};", {f"{k}, bandwidth times {times}": round(gain, 3) for (k, times), gain in gained.items()})
right = np.isclose([gained["box", 10], gained["gaussian", 1]], np.log(10))
raise SystemExit(not (right.all() and gained["gaussian", 10] > np.log(10) + 0.5))
PY
