"""Kernels of JAX: evaluations counted in compiled code are those executed, budgets hold, laws are the target's."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import parvibench as pb
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import BudgetExhausted, InputError
from parvibench.core.target import InJax, Target
from parvibench.jax_programs import counting

blackjax = pytest.importorskip("blackjax", reason="needs BlackJAX: pip install '.[jax]'")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

SKEWED = lambda x: (x - jnp.exp(x)).sum()  # noqa: E731

KERNELS: dict[str, Callable[[Any, int], Any]] = {
    "nuts": lambda f, d: blackjax.nuts(f, 0.3, jnp.ones(d)),
    "hmc": lambda f, d: blackjax.hmc(f, 0.2, jnp.ones(d), 4),
    "mala": lambda f, d: blackjax.mala(f, 0.1),
    "mclmc": lambda f, d: blackjax.mclmc(f, L=1.0, step_size=0.3),
    "random walk": lambda f, d: blackjax.rmh(f, lambda key, x: x + jax.random.normal(key, x.shape)),
    "barker": lambda f, d: blackjax.barker_proposal(f, 0.3),
    "ghmc": lambda f, d: blackjax.ghmc(f, 0.2, jnp.ones(d), 0.5, 0.2),
    "dynamic hmc": lambda f, d: blackjax.dynamic_hmc(f, 0.2, jnp.ones(d)),
    "adjusted mclmc": lambda f, d: blackjax.adjusted_mclmc_dynamic(f, 0.3, integration_steps_fn=lambda key: 3),
}


def problem_of(task: Any, **options: Any) -> Any:
    return task.problem([0], 7, **({"particles": 5} | options))


def stepped(kernel: Any, problem: Any, steps: int, path: list[Any] | None = None) -> list[Any]:
    """States after each step, in ``path`` where it is given."""
    path = [] if path is None else path
    settings = kernel.make_settings({})
    taken = take_steps(kernel.step, problem, settings, kernel.init(problem, settings, problem.streams, steps))
    for _, (state, _) in zip(range(steps), taken, strict=False):
        path.append(state)
    return path


SLOW = ("nuts", "dynamic hmc")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in KERNELS])
def test_the_count_is_that_of_executed_evaluations(name: str) -> None:
    """A callback in the density of one chain, whose loops wait for no other, counts what is executed."""
    executed = []

    def seen(x: Any) -> Any:
        jax.debug.callback(lambda: executed.append(1))
        return SKEWED(x)

    log_density = counting.recognised(seen, 2)
    algorithm = KERNELS[name](log_density, 2)
    start, step = counting.counted(algorithm.init, 2), counting.counted(algorithm.step, 2)

    def both(key: Any, x: Any) -> Any:
        state, *first = start(x, key)

        def one(state: Any, key: Any) -> Any:
            (state, _), *more = step(key, state)
            return state, jnp.stack(more)

        return first, jax.lax.scan(one, state, jax.random.split(key, 30))[1]

    first, more = jax.block_until_ready(jax.jit(both)(jax.random.key(1), jnp.zeros(2)))
    jax.effects_barrier()
    assert int(sum(first) + more.sum()) == len(executed) > 30


def test_every_construct_is_followed() -> None:
    """Loops, branches, batches, rematerialised and differentiated parts, second derivatives; the condition of a loop is not."""
    f = counting.recognised(lambda x: -(x @ x), 3)
    x = jnp.ones(3)

    def count(function: Callable[[Any], Any], at: Any = x) -> tuple[int, int]:
        return tuple(map(int, counting.counted(function, 3)(at)[1:]))  # type: ignore[return-value]

    grad = jax.grad(f)
    assert count(f) == (0, 1)
    assert count(lambda x: (f(x), grad(x))) == (1, 1)
    assert count(jax.vmap(grad), jnp.ones((4, 3))) == (4, 0)
    assert count(jax.vmap(f), jnp.ones((4, 3))) == (0, 4)
    assert count(lambda x: jax.lax.fori_loop(0, 7, lambda i, x: x + grad(x), x)) == (7, 0)
    assert count(lambda x: jax.lax.while_loop(lambda x: x[0] > 0.2, lambda x: 0.5 * x + 0 * grad(x), x)) == (3, 0)
    assert count(lambda x: jax.lax.map(f, jnp.stack([x, x]))) == (0, 2)
    assert count(lambda x: jax.lax.cond(x[0] > 0, grad, lambda x: x, x)) == (1, 0)
    assert count(lambda x: jax.lax.cond(x[0] < 0, grad, lambda x: x, x)) == (0, 0)
    assert count(lambda x: jax.jit(jax.checkpoint(grad))(x)) == (1, 0)
    assert count(jax.hessian(f))[0] >= 4
    ends = jax.vmap(
        counting.counted(lambda x: jax.lax.while_loop(lambda y: y[0] > 0.2, lambda y: 0.5 * y + 0 * grad(y), x), 3)
    )
    assert ends(jnp.array([[1.0, 1, 1], [0.1, 1, 1], [0.3, 1, 1]]))[1].tolist() == [3, 0, 1]
    with pytest.raises(pb.ParVIBenchError, match="in the condition of a loop cannot be counted"):
        count(lambda x: jax.lax.while_loop(lambda x: f(x) < -1, lambda x: 0.5 * x, x))


class Uncounted(Target):
    dim = 2

    def __init__(self, native: bool) -> None:
        self.native = native

    def log_density(self, x: torch.Tensor, batch: torch.Tensor | None = None) -> torch.Tensor:
        return (x - x.exp()).sum(-1)

    def in_jax(self) -> InJax | None:
        return InJax(_skewed, ()) if self.native else None


def _skewed(data: Any, x: Any) -> Any:
    return SKEWED(x)


def skewed_problem(native: bool, **options: Any) -> Any:
    from parvibench.core.streams import Streams
    from parvibench.core.task import Problem

    start = lambda target, n, generators: torch.linspace(-1, 1, 2 * n).view(1, n, 2)  # noqa: E731
    return Problem(Uncounted(native), Streams(1, [3], dtype=torch.float64), start=start, particles=4, **options)


@pytest.mark.parametrize("name", [pytest.param("nuts", marks=pytest.mark.slow), "hmc"])
def test_compiled_and_by_callback_are_one_sampler(name: str) -> None:
    """The same chains to rounding, and the same charge: points that chains in lockstep repeat are charged by neither."""
    native, called = skewed_problem(True), skewed_problem(False)
    paths = [stepped(pb.jax_sampler(KERNELS[name], name="k", block=4), problem, 8) for problem in (native, called)]
    torch.testing.assert_close(*(torch.stack([state.x for state in path]) for path in paths))
    assert native.meter.charged == called.meter.charged > 30
    assert native.meter.sequential_steps <= called.meter.sequential_steps


def test_a_kernel_that_cannot_be_counted_is_called_back() -> None:
    def make(log_density: Any, dim: int) -> Any:
        mala = blackjax.mala(log_density, 0.1)

        def step(rng_key: Any, state: Any) -> Any:
            worse = lambda x: log_density(x) < -10  # noqa: E731
            x = jax.lax.while_loop(worse, lambda x: 0.5 * x, state.position)
            return mala.step(rng_key, mala.init(x))

        return mala.init, step

    problem = skewed_problem(True)
    path = stepped(pb.jax_sampler(make, name="odd"), problem, 3)
    assert path[-1].x.isfinite().all()
    assert problem.meter.charged > 12


def test_the_budget_ends_where_it_would_be_overrun() -> None:
    """MALA scores once a step, and at the start: 4 chains; they are those of a run without a limit."""
    kernel = pb.jax_sampler(KERNELS["mala"], name="mala-jax", block=7)
    problem = skewed_problem(True)
    free = stepped(kernel, problem, 12)
    assert problem.meter.charged == 4 * 13
    limited = skewed_problem(True, limit=50)
    path: list[Any] = []
    with pytest.raises(BudgetExhausted):
        stepped(kernel, limited, 20, path)
    assert (len(path), limited.meter.charged) == (11, 48)
    torch.testing.assert_close(path[-1].x, free[10].x, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_law_is_the_targets(dtype: torch.dtype) -> None:
    """x - exp(x) is the density of the log of an exponential variable: mean -0.5772, variance pi^2 / 6; 5 standard errors."""
    task = pb.from_jax(SKEWED, dim=2, name="gumbel")
    problem = problem_of(task, particles=400, dtype=dtype)
    x = torch.stack([s.x for s in stepped(pb.jax_sampler(KERNELS["hmc"], name="h"), problem, 200)[100::5]]).double()
    assert x.shape == (20, 1, 400, 2)
    chains = x.mean((0, 3)).flatten()
    assert abs(chains.mean() + 0.5772) < 5 * chains.std() / 20
    squares = (x + 0.5772).square().mean((0, 3)).flatten()
    assert abs(squares.mean() - math.pi**2 / 6) < 5 * squares.std() / 20


def test_a_pair_of_functions_particles_and_settings() -> None:
    kernel = blackjax.hmc.build_kernel()

    def step(rng_key: Any, state: Any, logdensity_fn: Any) -> Any:
        return kernel(rng_key, state, logdensity_fn, 0.3, jnp.ones(2), 3)

    pair = pb.jax_sampler(blackjax.hmc.init, step, name="pair")
    whole = pb.jax_sampler(lambda f, dim, step_size=0.3: blackjax.hmc(f, step_size, jnp.ones(dim), 3), name="pair")
    a, b = (stepped(k, skewed_problem(True), 3)[-1].x for k in (pair, whole))
    assert torch.equal(a, b)
    assert list(whole.settings_type.model_fields) == ["step_size"]

    @pb.jax_sampler(kind="particles", position=lambda x: x)
    def flow(log_density: Any, dim: int, step_size: float = 0.1) -> Any:
        return lambda position: position, lambda rng_key, x: x + step_size * jax.vmap(jax.grad(log_density))(x)

    problem = skewed_problem(True)
    last = stepped(flow, problem, 100)[-1]
    assert problem.meter.charged == 4 * 100
    torch.testing.assert_close(last.x, torch.zeros_like(last.x), atol=1e-4, rtol=0)


def test_what_is_no_kernel_is_an_error() -> None:
    with pytest.raises(InputError, match="must take \\(log_density, dim\\)"):
        pb.jax_sampler(lambda log_density: 0)
    with pytest.raises(InputError, match="makes chains or particles"):
        pb.jax_sampler(KERNELS["hmc"], kind="generator")
    with pytest.raises(InputError, match="expected an object with init and step"):
        stepped(pb.jax_sampler(lambda f, d: 3, name="three"), skewed_problem(True), 1)


@pytest.mark.slow
def test_it_runs_on_shipped_and_own_tasks(tmp_path: Path) -> None:
    options = {"workers": 0, "out": tmp_path, "tracking": False, "replicates": 2, "particles": 20}
    task = pb.from_jax(SKEWED, dim=2, name="gumbel")
    kernel = pb.jax_sampler(KERNELS["hmc"], name="hmc-jax")
    results = pb.run(tasks=["banana", task], algorithms=[kernel, "mala"], budget={"score_evaluations": 4000}, **options)
    assert [cell.status for cell in results.cells] == ["ok"] * 4
    assert all(3800 <= cell.score_evaluations <= 4000 for cell in results.cells)
