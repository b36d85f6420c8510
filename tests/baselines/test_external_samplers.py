"""Samplers of other libraries: exact laws, scores charged as asked, budgets kept; absent ones are skipped in words."""

import contextlib
import importlib
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sampler_toys import Gaussian, Run, Skewed, make_problem
from scipy import stats

import parvibench as pb
from parvibench.core import registry
from parvibench.core.errors import BudgetExhausted

#: Stan's runs Stan programs only: see ``test_stan_models``.
LIBRARIES = {n: row.library for n, row in registry.algorithms().items() if row.library and "stan" not in row.needs}
NUTS = ["blackjax-nuts", "numpyro-nuts"]
BY_CALLBACK = [name for name, library in LIBRARIES.items() if library in ("blackjax", "numpyro")]
PRECISION, MEAN = [1.0, 4.0], 1.0
#: Short programs, one step of warm-up whatever the budget.
QUICK: dict[str, dict[str, Any]] = {
    **{name: {"block": 2, "warmup_blocks": 1, "max_tree_depth": 4} for name in NUTS},
    "blackjax-mclmc": {"block": 3, "tuning": 20},
}

each = pytest.mark.parametrize("name", LIBRARIES)


def need(name: str) -> None:
    if find_spec(LIBRARIES[name]) is None:
        pytest.skip(f"{LIBRARIES[name]} is not installed: pip install '.[{LIBRARIES[name]}]'")


def external(
    name: str, target: Any, *, particles: int = 20, limit: float | None = None, seed: int = 7, **settings: Any
) -> Run:
    need(name)
    given = QUICK.get(name, {}) | settings
    problem = make_problem(target, [0], particles=particles, dtype=torch.float32, limit=limit, seed=seed)
    return Run(name, problem, 1000, **given)


def path(run: Run, steps: int) -> NDArray[np.float64]:
    """(steps, N, D)"""
    return np.stack([run.steps(1).state.x[0].double().numpy() for _ in range(steps)])


def expectations(precision: float) -> list[tuple[Any, float]]:
    """Functions of a coordinate and their means under N(1, 1 / precision), in closed form."""
    sd = precision**-0.5
    return [
        (lambda x: x, MEAN),
        (lambda x: (x - MEAN) ** 2, sd**2),
        (lambda x: x < MEAN - sd, stats.norm.cdf(-1)),
        (lambda x: np.cos(3 * (x - MEAN)), math.exp(-4.5 * sd**2)),
    ]


@pytest.mark.parametrize("name", NUTS)
def test_chains_have_the_exact_law(name: str) -> None:
    """Eight expectations, Student t over 20 independent chains, p > 1e-6 each: false alarm 8e-6 a library.

    Catches a density of the wrong scale, a score that belongs to other points, transitions that share their draws.
    """
    run = external(name, Gaussian(PRECISION, mean=MEAN), block=5, warmup_blocks=30, max_tree_depth=5)
    run.steps(30)
    assert run.state.warmed == -1
    x = path(run, 30)
    for d, precision in enumerate(PRECISION):
        for f, expected in expectations(precision):
            chains = f(x[..., d]).mean(0)
            assert stats.ttest_1samp(chains, expected).pvalue > 1e-6, (chains.mean(), expected)


def test_microcanonical_chains_have_the_law() -> None:
    """As above, up to the bias of their energy error: a tenth of an sd in means, a quarter in variances."""
    run = external("blackjax-mclmc", Gaussian([*PRECISION, 2.0], mean=MEAN), block=20, tuning=500)
    run.steps(3)
    x = path(run, 40)[:, :, :2]
    z = (x - MEAN) * np.sqrt(PRECISION)
    error = z.mean(0).std(0, ddof=1) / math.sqrt(z.shape[1])
    assert (np.abs(z.mean((0, 1))) < 0.1 + 5 * error).all()
    assert (np.abs(z.var((0, 1)) - 1) < 0.25).all()


def test_walkers_have_the_exact_law() -> None:
    """Eight expectations, Student t over 30 batches of 60 steps, p > 1e-6 each: false alarm 8e-6."""
    run = external("emcee", Gaussian(PRECISION, mean=MEAN), particles=12)
    path(run, 100)
    x = path(run, 1800)
    for d, precision in enumerate(PRECISION):
        for f, expected in expectations(precision):
            batches = f(x[..., d]).reshape(30, -1).mean(1)
            assert stats.ttest_1samp(batches, expected).pvalue > 1e-6, (batches.mean(), expected)


def test_nested_sampling_finds_constant_and_law() -> None:
    """log Z within five of its standard errors, sqrt(H / N) of the information H; moments within five of 100 draws."""
    points, base_sd = 100, 5.0
    run = external("dynesty", Gaussian(PRECISION, mean=MEAN), particles=points, base_sd=base_sd)
    with contextlib.suppress(BudgetExhausted):
        run.steps(1000)
    variance = 1 / np.array(PRECISION)
    log_z = 0.5 * np.log(2 * math.pi * variance).sum()
    information = (np.log(base_sd / np.sqrt(variance)) + (variance + MEAN**2) / (2 * base_sd**2) - 0.5).sum()
    # the log constant of the density times that of its truncation to the base's prior mass: none, the base is a factor
    assert abs(run.info.log_z.item() - log_z) < 5 * math.sqrt(information / points)
    x = run.output(2000)[0].double().numpy()
    assert x.shape == (2000, 2)
    assert (np.abs(x.mean(0) - MEAN) < 5 * np.sqrt(variance / 100)).all()
    assert (np.abs(x.var(0) / variance - 1) < 5 * math.sqrt(2 / 100)).all()


@each
def test_what_is_asked_is_what_is_charged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row that reaches the target is one evaluation; a library with gradients asks for no point twice in a step."""
    target, rows = Gaussian(PRECISION, mean=MEAN), []
    for method in ("log_density", "log_density_and_score"):
        plain = getattr(Gaussian, method)

        def seen(self: Any, x: Any, *args: Any, method: str = method, plain: Any = plain) -> Any:
            if not inside:
                rows.append(x[0].clone())
            inside.append(1)
            try:
                return plain(self, x, *args)
            finally:
                inside.pop()

        monkeypatch.setattr(Gaussian, method, seen, raising=False)
    inside: list[int] = []
    run = external(name, target)
    for _ in range(3):
        before = len(rows)
        run.steps(1)
        asked = torch.cat(rows[before:])
        assert name not in BY_CALLBACK or len(asked.unique(dim=0)) == len(asked)
    assert run.problem.meter.charged == sum(map(len, rows)) > 20


@each
def test_the_last_complete_step_stands_when_the_budget_ends(name: str) -> None:
    limited = external(name, Skewed(2), limit=900)
    with pytest.raises(BudgetExhausted):
        limited.steps(1000)
    assert limited.problem.meter.charged <= 900
    assert limited.iteration >= 1
    free = external(name, Skewed(2)).steps(limited.iteration)
    assert torch.equal(limited.output(20), free.output(20))
    assert limited.output(20).isfinite().all()


@each
def test_runs_depend_on_their_streams_only(name: str) -> None:
    np.random.seed(0)  # noqa: NPY002 - a library might draw from it
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    a, b, other = (external(name, Skewed(2), seed=seed).steps(3).output(10) for seed in (7, 7, 8))
    assert torch.equal(a, b)
    assert not torch.equal(a, other)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("name", BY_CALLBACK)
def test_programs_are_compiled_once(name: str) -> None:
    """Compiling takes seconds: after the first steps it would be nearly all that a run does."""
    need(name)
    import jax

    run = external(name, Skewed(2)).steps(3)
    with jax.no_tracing(True):  # any further compilation raises
        further = run.steps(2)
    assert further.output(4).isfinite().all()


def test_too_few_walkers_are_no_failure(tmp_path: Path) -> None:
    need("emcee")
    options = {"workers": 0, "out": tmp_path, "tracking": False, "budget": {"iterations": 3}, "replicates": 1}
    (cell,) = pb.run(tasks=["gmm2-20d"], algorithms=["emcee"], particles=30, **options).cells
    assert cell.status == "unsupported"
    assert "emcee needs at least 2 D = 40 walkers, got 30 particles" in cell.reason


@each
def test_an_absent_library_is_a_row_with_the_line_that_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, real = ("jax", LIBRARIES[name]), importlib.import_module

    def absent(module: str, *args: Any, **options: Any) -> Any:
        if module.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(module, *args, **options)

    monkeypatch.setattr(importlib, "import_module", absent)
    options = {"workers": 0, "out": tmp_path, "tracking": False, "budget": {"iterations": 3}, "replicates": 1}
    ours, theirs = pb.run(tasks=["banana"], algorithms=["ula", name], **options).cells
    assert (ours.status, theirs.status) == ("ok", "skipped")
    assert f"pip install '.[{LIBRARIES[name]}]'" in theirs.reason


@each
def test_they_run_beside_ours(name: str, tmp_path: Path) -> None:
    """In the harness: one replicate a chunk, within the budget, samples of the right shape."""
    need(name)
    options = {"workers": 0, "out": tmp_path, "tracking": False, "replicates": 2, "particles": 20}
    settings = {name: QUICK.get(name, {})}
    results = pb.run(
        tasks=["multimodal"], algorithms=[name], budget={"score_evaluations": 3000}, settings=settings, **options
    )
    (cell,) = results.cells
    assert cell.status == "ok", cell.reason
    assert 0 < cell.score_evaluations <= 3000
    assert results.samples(cell).shape == (2, 20, 2)
    assert not np.array_equal(*results.samples(cell))
