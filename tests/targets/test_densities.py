"""``pb.task``: a log density becomes a target, or the reason why not is told."""

import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import parvibench as pb
from parvibench.core.errors import InputError, UnsupportedError
from parvibench.core.task import Problem
from parvibench.harness.run.account import Repeated
from parvibench.targets.densities import FunctionTask

MIX = torch.tensor([[1.0, 0.4, -0.2], [0.0, 0.8, 0.5], [0.3, 0.0, 1.2]])  # float32, as users' data are
X = torch.randn(2, 7, 3, generator=Generator().manual_seed(3), dtype=torch.float64)


def plain(x: Tensor) -> Tensor:
    return -(MIX.double() @ x).pow(4).sum() - 0.5 * x.square().sum()


def by_hand(x: Tensor) -> Tensor:
    """The score of ``plain``, written down: (..., 3) -> (..., 3)."""
    return -4 * (x @ MIX.double().T).pow(3) @ MIX.double() - x


WAYS = {
    "of a point": pb.task(plain, dim=3),
    "of many": pb.task(lambda x: -(x @ MIX.double().T).pow(4).sum(-1) - 0.5 * x.square().sum(-1), 3, batched=True, name="many"),
    "with a score": pb.task(lambda x: float(plain(x)), 3, score=lambda x: by_hand(x).numpy(), name="scored"),
    "with a score of many": pb.task(
        lambda x: (-((x.numpy() @ MIX.numpy().T.astype(float)) ** 4).sum(-1) - 0.5 * (x.numpy() ** 2).sum(-1)),
        3, batched=True, score=lambda x: by_hand(x).numpy(), name="scored-many",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_density_and_score_are_those_of_plain_calls(way: str) -> None:
    target = WAYS[way].target([0, 1], "cpu", torch.float64)
    density = torch.stack([plain(p) for p in X.reshape(-1, 3)]).reshape(2, 7)
    for log_density, score in ((target.log_density(X), target.score(X)), target.log_density_and_score(X)):
        torch.testing.assert_close(log_density, density, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(score, by_hand(X), rtol=1e-10, atol=1e-10)
    assert target.score(X.float()).dtype == torch.float32


@pytest.mark.parametrize("way", WAYS)
def test_differentiating_the_density_gives_the_score(way: str) -> None:
    """Also of a density that PyTorch cannot look into."""
    x = X.clone().requires_grad_()
    value = WAYS[way].target([0], "cpu", torch.float64).log_density(x)
    (found,) = torch.autograd.grad((value * torch.arange(14.0).reshape(2, 7)).sum(), x)
    torch.testing.assert_close(found, torch.arange(14.0).reshape(2, 7, 1) * by_hand(X), rtol=1e-9, atol=1e-9)


def test_calls_are_metered_outside_of_vmap() -> None:
    problem: Problem = WAYS["of a point"].problem(2, 0, particles=5, limit=20)
    x = problem.init()
    problem.score(x)
    assert float(problem.meter.charged) == 5
    assert problem.score(x).shape == (2, 5, 3)
    with pytest.raises(UnsupportedError, match="vmap hides rows"):
        torch.func.vmap(lambda p: problem.score(p.reshape(2, 1, 3)))(x.reshape(5, 2, 3))


def test_hessian_products_are_offered_where_there_are_some() -> None:
    assert "hvp" in WAYS["of a point"].provides
    assert "hvp" not in WAYS["with a score"].provides
    x = X.clone().requires_grad_()
    (found,) = torch.autograd.grad(WAYS["of a point"].target([0], "cpu", torch.float64).score(x).sum(), x)
    again = X.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(by_hand(again).sum(), again)
    torch.testing.assert_close(found, wanted)


def test_single_precision_data_are_taken() -> None:
    single = pb.task(lambda x: -(MIX @ x).pow(4).sum(), 3, name="single")
    assert single.precision is torch.float32
    found = single.target([0], "cpu", torch.float64).log_density(X)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, -(X @ MIX.double().T).pow(4).sum(-1), rtol=1e-5, atol=1e-5)


def test_other_data_are_another_density() -> None:
    """The same source, so only values can tell: stored cells of the one must not answer for the other."""
    tasks = [pb.task(lambda x, s=s: -(x / s).square().sum(), 2, name="scaled") for s in (1.0, 1.0, 2.0)]
    assert tasks[0].source == tasks[1].source != tasks[2].source


def draws(n: int, generator: Generator) -> Tensor:
    return torch.zeros(n, 2)


COUNT = itertools.count()

REFUSED = {
    "a vector": (lambda x: -x.square(), {}, r"gave shape \(3,\) for a point of shape \(3,\), not \(\)"),
    "one in a vector": (lambda x: -x.square().sum(0, keepdim=True), {}, r"write \.sum\(\) or \.squeeze\(\)"),
    "a sum over points": (lambda x: -x.square().sum(), {"batched": True}, "for a function of a single point leave batched=True out"),
    "points that see each other": (lambda x: -x.square().sum(-1) + x.mean(), {"batched": True}, "changes with the other points"),
    "outside of the support": (lambda x: x.log().sum(), {}, "is nan at the initial point .* map bounded parameters"),
    "minus infinity": (lambda x: torch.where(x.sum() < 99, -math.inf, 0.0) + 0 * x.sum(), {}, "is -inf at the initial point"),
    "no gradient": (lambda x: -x.detach().square().sum(), {}, "not differentiable by autograd"),
    "NumPy": (lambda x: -(x.numpy() ** 2).sum(), {}, r"not differentiable by autograd .*or give the gradient as score="),
    "an infinite gradient": (lambda x: (x - x.detach()).abs().sqrt().sum(), {}, "the score is not finite at the initial point"),
    "a branch": (lambda x: -x.square().sum() if x[0] > 0 else -x.abs().sum(), {}, r"cannot be vectorised .*torch\.where"),
    "chance": (lambda x: -x.square().sum() + torch.randn(()), {}, "gives other values when it is called again.*random numbers"),
    "other chance": (lambda x: -x.square().sum() + random.random(), {}, r"log_density gives other values when .* \(.*, then .* at one point\)"),
    "noise of a batch": (lambda x: -x.square().sum(-1) + torch.randn(len(x)), {"batched": True}, "log_density gives other values"),
    "noise of a scale": (lambda x: -x.square().sum() * (1 + 1e-3 * random.random()), {}, "log_density gives other values"),
    "a count of calls": (lambda x: -x.square().sum() + next(COUNT), {}, "log_density gives other values"),
    "a score by chance": (lambda x: -(x.numpy() ** 2).sum(), {"score": lambda x: -2 * x + random.random()}, "score gives other values"),
    "a wrong score": (lambda x: -(x.numpy() ** 2).sum(), {"score": lambda x: -x}, "score is not the gradient of log_density"),
    "a score of another shape": (lambda x: -(x.numpy() ** 2).sum(), {"score": lambda x: -2 * x[:2]}, r"score gave shape \(2,\), not \(3,\)"),
    "a failing score": (lambda x: -(x.numpy() ** 2).sum(), {"score": lambda x: 1 / 0}, "score fails: ZeroDivisionError"),
    "another dimension": (lambda x: -(torch.eye(4, dtype=x.dtype) @ x).sum(), {}, "is dim=3 right"),
    "no dimension": (lambda x: -x.square().sum(), {"dim": 0}, "dim is the number of coordinates"),
    "no name": (lambda x: -x.square().sum(), {"name": None}, "name='<lambda>'"),
    "a path as name": (lambda x: -x.square().sum(), {"name": "../x"}, "a task's name has letters"),
    "a start of another dimension": (lambda x: -x.square().sum(), {"initial": [0.0, 1.0]}, "initial has shape"),
    "draws of another dimension": (lambda x: -x.square().sum(), {"initial": draws}, r"initial\(n=4, generator\) gave shape \(4, 2\)"),
    "exact draws of another dimension": (lambda x: -x.square().sum(), {"exact": draws}, r"exact\(n=2, generator\) gave shape"),
    "names of other coordinates": (lambda x: -x.square().sum(), {"coordinates": ["a"]}, "1 coordinates are named, and dim=3"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_density_is_told(case: str) -> None:
    function, options, told = REFUSED[case]
    with pytest.raises(InputError, match=told) as refused:
        pb.task(function, **({"dim": 3, "name": "mine"} | options))
    assert "\n" not in str(refused.value)


def test_a_built_in_s_name_is_refused_where_it_would_matter(tmp_path) -> None:
    other = pb.task(lambda x: -x.square().sum(), 2, name="banana")
    with pytest.raises(InputError, match="'banana' is the name of a built-in task"):
        pb.evaluate(np.zeros((50, 2)), task=other)


def _late(kind: str, first: int = 60) -> FunctionTask:
    """A Gaussian that stops being a function after so many calls, in one of several ways; ``none`` stays one."""
    calls, generator = itertools.count(), random.Random(1)

    def density(x: Tensor) -> Tensor:
        late, value = next(calls) >= first, -x.square().sum(-1) / 2
        if not late or kind in ("none", "score"):
            return value
        return {
            "added": value + generator.random(),
            "in the gradient": value + 0.01 * generator.random() * x[..., 0],
            "of a point": value + torch.tensor([generator.gauss(0, 1) for _ in x]),
            "another law": value / 4,
            "not finite": value + math.nan if generator.random() < 0.9 else value,
        }[kind]

    def score(x: Tensor) -> Tensor:
        return -x + (0.01 * generator.random() if next(calls) >= first else 0.0)

    return pb.task(density, 2, name="late", batched=True, score=score if kind == "score" else None)


@pytest.mark.ci
@pytest.mark.parametrize("algorithm", ["ula", "mala"])
@pytest.mark.parametrize(
    "kind", ["none", "added", "in the gradient", "of a point", "another law", "score", "not finite"]
)
def test_a_density_that_stops_being_a_function_is_flagged(kind: str, algorithm: str, tmp_path: Path) -> None:
    options = {"replicates": 2, "particles": 8, "budget": {"iterations": 200}, "tracking": False, "out": tmp_path}
    (cell,) = pb.run(tasks=[_late(kind)], algorithms=[algorithm], **options).cells
    assert any("the density of one point changed between calls" in flag for flag in cell.flags) == (kind != "none")


@pytest.mark.ci
def test_calling_a_density_again_changes_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is charged, and samples are the same to the last bit; the densities of built-in tasks are not called."""
    found = []
    for again in (True, False):
        if not again:
            monkeypatch.setattr(Repeated, "changed", lambda *_: False)
        run = pb.run(
            tasks=[_late("none"), "banana"], algorithms=["ula", "mala"], replicates=2, particles=8,
            budget={"score_evaluations": 500}, tracking=False, out=tmp_path / str(again),
        )  # fmt: skip
        found.append([(c.label, c.values.get("ksd"), c.score_evaluations, run.samples(c).tobytes()) for c in run.cells])
    assert found[0] == found[1]
    monkeypatch.setattr(Repeated, "__init__", lambda *_: pytest.fail("a built-in task"))
    assert not pb.run(
        tasks=["banana"], algorithms=["ula"], budget={"iterations": 5}, tracking=False, out=tmp_path, workers=0
    ).failed
