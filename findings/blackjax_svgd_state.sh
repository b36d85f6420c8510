#!/usr/bin/env bash
# BlackJAX 1.7.1: `blackjax.svgd(...).step` of one state, twice, without `jax.jit`.
# Guess: states are values, as everywhere in BlackJAX: the same step of the same state gives the same particles, and `init` a length scale of 1.
# Seen: the median heuristic writes into the dictionary of the state it was given, which is also the default argument of `init`: the second
# result is another one, and a later `init` starts with the length scale of the earlier run. The update in place is documented for
# `median_heuristic`, not for `step` or `init`.
. "$(dirname "$0")/_packages.sh" blackjax==1.7.1 jax==0.10.2 numpy==2.4.6 optax==0.2.8
"$python" - <<'PY'
import blackjax, jax, jax.numpy as jnp, optax

particles = jax.random.normal(jax.random.key(0), (20, 2))
svgd = blackjax.svgd(lambda x: -x, optax.sgd(0.1))
state = svgd.init(particles)
first, second = svgd.step(state).particles, svgd.step(state).particles
scale = float(svgd.init(particles).kernel_parameters["length_scale"])
print(f"largest difference of the two results {float(jnp.abs(first - second).max()):.4f}; length scale of a new state {scale:.3f}")
raise SystemExit(not (float(jnp.abs(first - second).max()) > 1e-3 and abs(scale - 1) > 0.01))
PY
