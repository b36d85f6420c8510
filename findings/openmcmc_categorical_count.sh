#!/usr/bin/env bash
# openMCMC 1.0.9: `Categorical.log_p` of several independent categories, where all have the same probabilities.
# Guess: the sum of what `by_observation=True` gives: four tosses of a fair coin have the log probability 4 log(0.5) = -2.77, in any pattern.
# Seen: -2.77 for 0 0 0 0 and -0.98 for 0 0 1 1: the probability of the counts, with the number of patterns that have them. A chain over
# allocations that takes it as a target prefers mixed ones.
. "$(dirname "$0")/_packages.sh" openmcmc==1.0.9 numpy==2.4.6 scipy==1.17.1
"$python" - 2>/dev/null <<'PY'
from itertools import product
from math import comb, log
import numpy as np
from openmcmc.distribution.distribution import Categorical

law, fair, total, held = Categorical("z", prob="p"), np.array([[0.5, 0.5]]), 0.0, True
for z in product((0, 1), repeat=4):
    state = {"z": np.array([z]), "p": fair}
    joint, each = float(law.log_p(state)), float(np.sum(law.log_p(state, by_observation=True)))
    total += np.exp(joint)
    held = held and abs(each - 4 * log(0.5)) < 1e-9 and abs(joint - each - log(comb(4, sum(z)))) < 1e-9
    if z in ((0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1)):
        print(f"{z}: log_p {joint:.2f}, sum by observation {each:.2f}")
print(f"probabilities of all 16 patterns: sum {total:.2f} (1)")
raise SystemExit(not (held and total > 4))
PY
