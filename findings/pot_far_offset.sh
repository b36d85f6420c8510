#!/usr/bin/env bash
# POT 0.9.7.post1: the squared distance is expanded, so that distances vanish far from the origin.
# Guess: W2 is invariant under a common translation, with errors of the size of rounding (1e-8 at 1e8). Seen: samples one unit apart
# have W2 = 1 at the origin and 0 at an offset of 1e8 (time stamps in seconds are at 1.7e9).
. "$(dirname "$0")/_packages.sh" POT==0.9.7.post1
"$python" - <<'PY'
import numpy as np, ot

x = np.linspace(0, 1, 50)[:, None]
found = {}
for offset in (0.0, 1e6, 1e8):
    cost = ot.dist(x + offset, x + offset + 1.0)
    found[offset] = float(ot.emd2([], [], cost)) ** 0.5
    print(f"offset {offset:g}: W2 = {found[offset]:.6g}")
raise SystemExit(not (abs(found[0.0] - 1) < 1e-6 and found[1e8] == 0))
PY
