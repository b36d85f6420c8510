"""Every algorithm, metric and task family runs on a GPU, as far as that can be known without one.

On the stand-in card all numbers are the CPU's: what is made on the wrong device, a round trip through NumPy or a
generator of the other device fails, reads that make the host wait are counted against the class's ``host_bound``, and
results must be the CPU's.
"""

from typing import Any

import numpy as np
import pytest
import torch
from both_devices import assert_same, cell_of, numbers, on_both, plugged_in, stepped
from own_files import PYRO, write
from sampler_toys import VARIANTS
from stand_in_card import StandInCard

import parvibench as pb
from parvibench.core import registry
from parvibench.core.errors import DataMissingError, InputError
from parvibench.core.sequential import SequentialTask
from parvibench.data import fetch
from parvibench.harness.run.chunks import pack_result
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.store.files import SnapshotFile

#: Samplers of other libraries in JAX and NumPy: their states are the library's, and they look at every number.
EXEMPT = {
    "blackjax-nuts", "blackjax-mclmc", "numpyro-nuts", "emcee", "dynesty", "stan-nuts",
}  # fmt: skip
ROWS = registry.algorithms()
SAMPLERS = [name for name, row in ROWS.items() if row.kind != "anchor" and name not in EXEMPT]
#: Reads a gradient call, for steps that take as many of them as the numbers demand.
PER_GRADIENT = {"nuts": 12}
#: One task of every kind of density: by hand, by autograd, of data, of networks, of a recursion.
FAMILIES = (
    "gmm5-2d", "banana", "bnn-diabetes-sklearn", "blr-breast-cancer", "rats", "hmm-example", "accel-gp", "ica-synthetic",
    "bandit-wheel", "many-well-32", "student-10d", "brownian-32", "lapd-mixture-32", "eight_schools-noncentered",
)  # fmt: skip
TASKS = list(registry.tasks())


def test_the_exempt_are_those_of_other_libraries() -> None:
    assert {name for name in ROWS if registry.load_method(name).library} == EXEMPT


@pytest.mark.parametrize(
    ("name", "settings"),
    [(n, {}) for n in SAMPLERS] + [pytest.param(*v, marks=pytest.mark.slow) for v in VARIANTS],
    ids=lambda v: v if isinstance(v, str) else str(v),
)
@pytest.mark.parametrize("task", ["gmm5-2d", pytest.param("bnn-diabetes-sklearn", marks=pytest.mark.slow)])
def test_a_sampler_steps_on_the_card(name: str, settings: dict[str, Any], task: str) -> None:
    method, target = registry.load_algorithm(name), registry.load_task(task)
    if method.needs - target.provides:
        pytest.skip(f"{task} lacks what {name} needs")
    dtype = torch.float64
    there, here, _ = on_both(lambda device, card: stepped(name, target, device, card, dtype=dtype, **settings))
    assert_same((there.state, there.output), (here.state, here.output))
    most = PER_GRADIENT.get(name, method.host_bound)
    assert there.waits.total() <= most * there.gradients, (there.waits, there.gradients)


def test_a_class_says_how_often_its_steps_read_the_device() -> None:
    unbounded = {name for name in SAMPLERS if registry.load_algorithm(name).host_bound is True}
    assert unbounded == set(PER_GRADIENT)


def family_or_slow(name: str) -> Any:
    return name if name in FAMILIES else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [family_or_slow(name) for name in TASKS])
def test_a_density_is_the_same_on_the_card(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = registry.load_task(name)
    monkeypatch.setattr(fetch, "_download", _refuse, raising=False)
    try:
        task.target((0,), "cpu", torch.float32)
    except DataMissingError as missing:
        pytest.skip(str(missing).splitlines()[0])

    def work(device: str, card: StandInCard) -> Any:
        problem = task.problem((0, 1), 0, device, torch.float64, particles=3)
        x = problem.init()
        if problem._batch_size and not isinstance(task, SequentialTask):
            problem.streams.batch(task.rows or 0, problem._batch_size)
        card.waits.clear()
        found = [x, problem.score(x), problem.log_density(x), problem.log_density_and_score(x)]
        if "hvp" in task.provides:
            leaf = x.clone().requires_grad_()
            found.append(torch.autograd.grad(problem.score(leaf).sum(), leaf)[0])
        waits = card.waits.copy()
        held = task.predictive((0, 1), device, torch.float64)
        return [*found, *(() if held is None else (held.predict(x), held.y))], waits

    (there, waits), (here, _), _ = on_both(work)
    assert_same(there, here)
    assert not waits


def _refuse(*_: Any) -> None:
    raise DataMissingError("not fetched by a test")


def chunk(device: str, task: Any, algorithm: str, **keys: Any) -> Any:
    cell = cell_of(task, algorithm, device, **keys)
    result = run_chunk(cell, cell.chunks[0])
    pack_result(cell, cell.chunks[0], result)
    return result


REFERENCE = [n for n, r in registry.metrics().items() if r.need not in ("predictive", "decisions")]
PREDICTIVE = [
    "rmse",
    "nll",
    "crps",
    "coverage",
    "path_primary",
    "ess_bulk",
    *(n for n in registry.metrics() if n.startswith("predictive_")),
]
#: Whole runs that between them compute every metric: with a reference, with held-out rows, of decisions, of sources.
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "chains": ("gmm5-2d", "mala", {"metrics": REFERENCE}),
    "chains that are read": ("gmm5-2d", "nuts", {}),
    "fewer chains than samples": ("gmm5-2d", "srld", {"samples": 8}),
    "particles": ("gmm5-2d", "svgd", {}),
    "a generator": ("banana", "mean-field", {}),
    "predictions": ("bnn-diabetes-sklearn", "sgld", {"metrics": PREDICTIVE}),
    "decisions": ("bandit-wheel", "mala", {"contexts": 200}),
    "sources": ("ica-synthetic", "sgld", {"metrics": ["amari"], "particles": 4, "chunk": 1}),
    "exact draws": ("gmm5-2d", "exact", {}),
    "first points": ("bnn-diabetes-sklearn", "initial", {}),
}


@pytest.mark.ci
@pytest.mark.parametrize(
    "run", [pytest.param(r, marks=pytest.mark.slow) if r in ("sources", "chains") else r for r in RUNS]
)
def test_a_run_on_the_card_is_the_cpus(run: str) -> None:
    """Loop, checkpoints, recorder, decisions, metrics and their floors."""
    task, algorithm, keys = RUNS[run]
    there, here, _ = on_both(lambda device, _: chunk(device, task, algorithm, **keys))
    np.testing.assert_allclose(there.samples, here.samples, rtol=1e-3, atol=1e-4)
    assert there.absent == here.absent
    assert there.values.keys() == here.values.keys()
    for metric in there.values.keys() - {"seconds", "peak_memory", "ess_per_second"}:
        np.testing.assert_allclose(there.values[metric], here.values[metric], rtol=1e-3, atol=1e-4, err_msg=metric)


def test_the_runs_compute_every_metric() -> None:
    asked = {m for task, _, keys in RUNS.values() for m in keys.get("metrics", registry.load_task(task).metrics)}
    assert asked >= registry.metrics().keys()


def test_metrics_and_floors_take_samples_of_the_card() -> None:
    with plugged_in() as card:
        samples = registry.load_task("gmm5-2d").problem(1, 0, "cuda", particles=100).init()[0]
        card.waits.clear()
        there = pb.evaluate(samples, task="gmm5-2d")
        assert card.waits.total() == 1, "one copy to the host"
    here = pb.evaluate(registry.load_task("gmm5-2d").problem(1, 0, particles=100).init()[0], task="gmm5-2d")
    assert there == here


@pytest.mark.parametrize("algorithm", ["hmc", "svgd"])
def test_a_snapshot_resumes_on_the_card(algorithm: str, tmp_path: Any) -> None:
    def interrupted(device: str, _: StandInCard) -> Any:
        file = SnapshotFile(tmp_path / device, 0.0)
        cell = cell_of("gmm5-2d", algorithm, device)

        def stop(news: Any) -> None:
            if news["iteration"] >= 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_chunk(cell, cell.chunks[0], stop, file)
        assert file.load() is not None
        return run_chunk(cell, cell.chunks[0], snapshot=file)

    there, here, _ = on_both(interrupted)
    np.testing.assert_allclose(there.samples, here.samples, rtol=1e-5, atol=1e-6)


SCALES = torch.tensor([1.0, 2.0])


def alone_of(x):
    return -x.square().sum() * torch.arange(2, device=x.device)[1]


def all_of(x):
    return -x.square().sum(-1)


def scaled_of(x):
    return -(x / SCALES.to(x)).square().sum()


OWN: dict[str, Any] = {
    "point by point": lambda: pb.task(alone_of, dim=2),
    "batched": lambda: pb.task(all_of, dim=2, batched=True),
    "with a score": lambda: pb.task(all_of, dim=2, batched=True, score=lambda x: -2 * x),
    "with constants": lambda: pb.task(scaled_of, dim=2),
    "Pyro": "schools",
    "Pyro with data": "counted",
}


@pytest.mark.parametrize("kind", OWN)
def test_an_own_task_runs_on_the_card(kind: str, tmp_path: Any) -> None:
    if callable(OWN[kind]):
        task = OWN[kind]()
    else:
        task = getattr(registry._load_file(write(tmp_path, "models.py", PYRO)), OWN[kind])

    def work(device: str, _: StandInCard) -> Any:
        problem = task.problem((0, 1), 0, device, torch.float64, particles=3)
        x = problem.init()
        return [x, problem.score(x), problem.log_density(x), problem.log_density_and_score(x)]

    there, here, _ = on_both(work)
    assert_same(there, here)


@pytest.mark.parametrize(
    ("function", "score"),
    [(lambda x: -(x / SCALES).square().sum(), None), (lambda x: -np.square(x.numpy()).sum(), lambda x: -2 * x)],
    ids=["tensors", "NumPy"],
)
def test_an_own_function_of_the_host_is_refused_in_words(function: Any, score: Any) -> None:
    task = pb.task(function, dim=2, score=score, name="of-the-host")
    with plugged_in():
        problem = task.problem(1, 0, "cuda", particles=3)
        with pytest.raises(InputError, match=r"of-the-host: the function combines points on cuda:0 .*--device cpu"):
            problem.log_density(problem.init())


def test_an_own_sampler_runs_on_the_card() -> None:
    @pb.sampler
    def drift(problem, x0, generator):
        x = x0
        while True:
            noise = torch.randn(x.shape, generator=generator).to(x)
            x = x + 0.01 * problem.score(x) + 0.14 * noise
            yield x

    there, here, _ = on_both(
        lambda device, card: stepped(drift.name, registry.load_task("banana"), device, card, algorithm=drift)
    )
    assert_same((there.state, there.output), (here.state, here.output))
    assert numbers(there.output)
