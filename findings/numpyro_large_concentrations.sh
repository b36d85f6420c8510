#!/usr/bin/env bash
# NumPyro 0.22.0 in its default single precision: log densities with a large concentration or many degrees of freedom.
# Guess: right to some six digits, near their limits (multinomial, normal, Poisson). Seen: a Dirichlet-multinomial probability of 7.4, a
# Student t density of 0.88 for 0.35, a negative binomial one of 0.22 for 0.18: differences of log gamma functions that are rounded to
# steps of 1/8 and more. A prior that lets a sampler go there gives it a staircase. Double precision is right.
. "$(dirname "$0")/_packages.sh" numpyro==0.22.0 jax==0.10.2
cat > "$work/densities.py" <<'PY'
import jax.numpy as jnp, numpyro.distributions as dist

print(
    round(float(dist.DirichletMultinomial(jnp.full(3, 1e6), 10).log_prob(jnp.array([3, 3, 4]))), 4),
    round(float(dist.StudentT(1e7).log_prob(0.5)), 4),
    round(float(dist.NegativeBinomial2(5.0, 1e7).log_prob(5)), 4),
)
PY
single="$("$python" "$work/densities.py")"
double="$(JAX_ENABLE_X64=1 "$python" "$work/densities.py")"
echo "log densities in single precision: $single; in double: $double"
[ "$single" = "2.0 -0.125 -1.5087" ] && [ "$double" = "-2.6433 -1.0439 -1.7403" ]
