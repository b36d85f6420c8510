#!/usr/bin/env bash
# BlackJAX 1.7.1, TensorFlow Probability 0.26.0.dev20261027 (JAX): the step size of the adjusted Langevin algorithm.
# Guess: a step size tuned with one library is that of the other.
# Seen: proposals of step h move by h grad with variance 2 h in BlackJAX, by h/2 grad with variance h in TensorFlow Probability.
. "$(dirname "$0")/_packages.sh" blackjax==1.7.1 jax==0.10.2 numpy==2.4.6 tfp-nightly==0.26.0.dev20261027
"$python" - <<'PY'
import blackjax, jax, jax.numpy as jnp
from tensorflow_probability.substrates.jax.mcmc import MetropolisAdjustedLangevinAlgorithm

H, N, GRAD = 0.1, 20_000, 10.0  # on a linear density every proposal is accepted


def moments(x):
    return float(x.mean() / (H * GRAD)), float(x.var() / H)


kernel = blackjax.mala(lambda x: GRAD * x, H)
start = kernel.init(jnp.array(0.0))
ours = moments(jax.vmap(lambda key: kernel.step(key, start)[0].position)(jax.random.split(jax.random.key(0), N)))
other = MetropolisAdjustedLangevinAlgorithm(lambda x: GRAD * x.sum(-1), H)
zeros = jnp.zeros((N, 1))
theirs = moments(other.one_step(zeros, other.bootstrap_results(zeros), seed=jax.random.key(0))[0])
print("drift / (h grad), variance / h: BlackJAX {:.2f}, {:.2f}; TFP {:.2f}, {:.2f}".format(*ours, *theirs))
close = lambda pair, right: all(abs(x - y) < 0.05 * y for x, y in zip(pair, right))
raise SystemExit(not (close(ours, (1, 2)) and close(theirs, (0.5, 1))))
PY
