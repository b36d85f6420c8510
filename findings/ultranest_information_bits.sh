#!/usr/bin/env bash
# ultranest 4.6.3: `information_gain_bits` of a parameter, beside `H`, from a uniform prior to a Gaussian posterior.
# Guess: the Kullback-Leibler divergence of the posterior from the prior: 1.27 bits at sd 0.1, close to 0 where the data say nothing.
# Seen: below 0, -1.9 and -5.1 bits (about -log2 of its 40 bins for no data). `H`, in nats, is right at sd 0.1 and 2.1 for no data.
. "$(dirname "$0")/_packages.sh" ultranest==4.6.3 numpy==2.1.3 scipy==1.14.1
"$python" - <<'PY'
import logging

import numpy as np
import ultranest

logging.disable(logging.CRITICAL)
found = []
for sd in (0.1, 10.0):
    np.random.seed(1)
    sampler = ultranest.ReactiveNestedSampler(["x"], lambda p: -(((p[:, 0] - 0.5) / sd) ** 2) / 2, lambda cube: cube, vectorized=True)
    result = sampler.run(show_status=False, viz_callback=False)
    found.append((result["posterior"]["information_gain_bits"][0], result["H"]))
    x = (np.arange(100_000) + 0.5) / 100_000
    density = np.exp(-(((x - 0.5) / sd) ** 2) / 2)
    density /= density.mean()
    exact = float(np.mean(density * np.log2(density)))
    print(f"sd {sd}: {found[-1][0]:.2f} bits, exact {abs(exact):.2f}; H {found[-1][1]:.2f} nats")
(narrow, H), (none, H_none) = found
raise SystemExit(not (-2.5 < narrow < -1.4 and -5.4 < none < -4.9 and 0.8 < H < 1.0 and H_none > 1))
PY
