#!/usr/bin/env bash
# ChainConsumer 1.3.0: `diagnostic.geweke()`, which compares the beginning of walkers with their end.
# Guess: twenty walkers that drift by twenty standard deviations fail it.
# Seen: they pass in most of ten draws, as walkers that stand in the target do: the z values of all walkers are tested for the shape of a
# normal distribution, not for its mean 0 and its variance 1. `gelman_rubin()` passes them, too, since they drift together.
. "$(dirname "$0")/_packages.sh" chainconsumer==1.3.0 numpy==2.1.3 pandas==2.3.3 scipy==1.16.3
"$python" - <<'PY'
import numpy as np
import pandas as pd
from chainconsumer import Chain, ChainConsumer

random = np.random.default_rng(0)


def passed(drift, walkers=20, length=1000):
    x = random.normal(size=(walkers, length, 2)) + drift * np.linspace(0, 1, length)[:, None]
    table = pd.DataFrame(x.reshape(-1, 2), columns=["a", "b"])
    tests = ChainConsumer().add_chain(Chain(samples=table, name="run", walkers=walkers)).diagnostic
    return bool(tests.geweke()), bool(tests.gelman_rubin())


found = {drift: np.sum([passed(drift) for _ in range(10)], axis=0).tolist() for drift in (0, 20)}
print(f"passed of ten by the drift: (geweke, gelman_rubin) {found}")
raise SystemExit(not (min(found[0]) >= 7 and min(found[20]) >= 7))
PY
