"""BlackJAX is given the same targets as ours: their gradients agree; its samplers take steps on them."""

import math

import numpy as np
import pytest
import torch
from jobs import JOBS, Job

pytest.importorskip("blackjax", reason="needs BlackJAX: pip install '.[jax]'")

PEERED = [job for job in JOBS if "blackjax" in job.rivals]


@pytest.mark.parametrize("job", PEERED, ids=lambda job: job.name)
def test_the_peer_has_our_score(job: Job) -> None:
    if job.missing:
        pytest.skip(job.missing)
    import jax
    import peers

    task = job.fresh().task
    target = task.target((0,), "cpu", torch.float32)
    x = task.initial(target, 3, [torch.Generator().manual_seed(0)]).float()
    if "network" in task.tags:
        rows = np.arange(100)
        density, batch = peers.network_regression(task), torch.from_numpy(rows).unsqueeze(0)
        score = jax.vmap(jax.grad(lambda p: density(p, rows)))
    else:
        density = {"blr": peers.logistic, "funnel": peers.funnel}.get(task.name.split("-")[0], peers.mixture)(task)
        batch = None
        score = jax.vmap(jax.grad(density))
    ours = target.score(x, batch)[0].numpy()
    theirs = np.asarray(score(x[0].numpy()))
    np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-3 * np.abs(ours).max())


def test_a_program_goes_on_from_where_it_was() -> None:
    """Catches a timing loop that repeats one step from one start."""
    import jax.numpy as jnp
    import peers

    run = peers.scanned(lambda key, n: (n + 1, n), jnp.zeros(()), lambda extras: float(extras.sum()))
    assert run(3) == 0 + 1 + 2
    assert run(2) == 3 + 4
    assert math.isfinite(run(1))
