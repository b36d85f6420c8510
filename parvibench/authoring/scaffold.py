"""Files to start from: an algorithm or a task of one's own that runs as it is, with its test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from parvibench.core import registry
from parvibench.core.errors import InputError

_ALGORITHM = '''"""CLASS: what it does, in a sentence.

Author (year), arXiv:0000.00000, Algorithm 1:

    x <- x + eta s(x) + sqrt(2 eta) xi,   xi ~ N(0, I)
"""

import math
from typing import NamedTuple

from pydantic import Field
from torch import Tensor

import parvibench as pb


class Settings(pb.AlgorithmSettings):
    step_size: float = Field(0.01, gt=0, description="eta, in x^2")  # `parvibench tune` tunes `step_size`


class State(NamedTuple):
    x: Tensor  # (R, N, D): replicates, chains, dimensions; replicates must not see one another


class CLASS(pb.Algorithm[Settings, State]):
    name, kind = "NAME", "chains"  # kind: particles, chains or generator
    summary, citation = "one line", "Author (year), arXiv:0000.00000"

    def init(self, problem: pb.Problem, settings: Settings, streams: pb.Streams, horizon: int) -> State:
        return State(problem.init())

    def step(self, problem: pb.Problem, settings: Settings, state: State, streams: pb.Streams) -> State:
        x, eta = state.x, settings.step_size
        noise = streams.normal("noise", x.shape[1:])  # all randomness is from `streams`
        return State(x + eta * problem.score(x) + math.sqrt(2 * eta) * noise)  # every score is counted
'''

_ALGORITHM_TEST = '''"""CLASS on targets with known answers, and against the contract of the interface."""

from collections.abc import Callable

from MODULE import CLASS


def test_it_samples_what_it_should(parvibench_check: Callable[..., None]) -> None:
    parvibench_check(CLASS(), iterations=500)
'''

_TASK = '''"""TITLE: what it is, in a sentence."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

import parvibench as pb
from parvibench.core.exact import ExactTask

SD = torch.tensor([1.0, 0.5])


class Density(pb.Target):
    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:  # (R, N, D) -> (R, N); score by autograd
        return -0.5 * (x / SD.to(x)).square().sum(-1)


@dataclass(frozen=True, kw_only=True)
class Task(ExactTask):
    def target(self, replicates, device, dtype):
        return Density()

    def exact(self, n: int, generator: Generator) -> Tensor:  # independent draws, (n, D) float64
        return torch.randn(n, 2, generator=generator, dtype=torch.float64) * SD


OBJECT = Task(
    name="NAME", summary="one line", dim=2, tags=frozenset({"2d", "exact"}), citation="where it is from",
    facts=pb.Facts(mean=torch.zeros(2), sd=SD),
)
'''

_TASK_TEST = '''"""TITLE: exact draws against the facts and the density; a sampler that runs on it."""

from pathlib import Path

import torch
from MODULE import OBJECT

import parvibench as pb


def test_exact_draws_have_the_stated_moments() -> None:
    """Five standard errors of 20,000 draws: false alarm below 1e-5."""
    x, facts = OBJECT.exact(20_000, torch.Generator().manual_seed(0)), OBJECT.facts
    assert ((x.mean(0) - facts.mean).abs() < 5 * facts.sd / 20_000**0.5).all()
    assert ((x.std(0) / facts.sd - 1).abs() < 5 / (2 * 20_000) ** 0.5).all()


def test_the_score_has_mean_zero_under_the_law() -> None:
    """By Stein's identity, if draws and density agree; five standard errors."""
    x = OBJECT.exact(20_000, torch.Generator().manual_seed(1)).unsqueeze(0)
    score = OBJECT.target([0], "cpu", torch.float64).score(x)[0]
    assert (score.mean(0).abs() < 5 * score.std(0) / 20_000**0.5).all()
    assert ((score * x[0] + 1).mean(0).abs() < 5 * (score * x[0]).std(0) / 20_000**0.5).all()


def test_a_sampler_runs_on_it(tmp_path: Path) -> None:
    options = {"replicates": 2, "budget": {"iterations": 20}, "workers": 0, "out": tmp_path, "tracking": False}
    assert not pb.run(tasks=[OBJECT], algorithms=["ula"], **options).failed
'''


class Scaffold(NamedTuple):
    """What was written, and what to type next."""

    files: tuple[Path, Path]
    run: str
    test: str


def scaffold(kind: str, name: str, folder: Path) -> Scaffold:
    """Write ``name``'s file and its test into a folder.

    Raises:
        InputError: no usable name, one that is taken, a file that is there, or no such folder.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", name) or len(name) > 60:
        raise InputError(f"new {kind} {name!r}: a name has letters, digits and single hyphens, such as my-{kind}")
    if name in (registry.algorithms() if kind == "algorithm" else registry.tasks()):
        raise InputError(
            f"new {kind} {name}: there is {'an' if kind == 'algorithm' else 'a'} {kind} of that name already"
        )
    if not folder.is_dir():
        raise InputError(f"--to {folder}: no such folder")
    words = re.split("[-_]", name)
    attribute = "".join(w[0].upper() + w[1:] for w in words) if kind == "algorithm" else "_".join(words).upper()
    module = "_".join(words).lower()
    paths = folder / f"{module}.py", folder / f"test_{module}.py"
    if there := [str(p) for p in paths if p.exists()]:
        raise InputError(f"new {kind} {name}: {', '.join(there)} is there already; nothing is written")
    texts = (_ALGORITHM, _ALGORITHM_TEST) if kind == "algorithm" else (_TASK, _TASK_TEST)
    for path, text in zip(paths, texts, strict=True):
        for key, value in {
            "MODULE": module,
            "NAME": name,
            "CLASS": attribute,
            "OBJECT": attribute,
            "TITLE": name,
        }.items():
            text = re.sub(rf"\b{key}\b", value, text)
        path.write_text(text, encoding="utf-8")
    place = f"{paths[0]}:{attribute}"
    which = f"--task banana --algorithm {place}" if kind == "algorithm" else f"--task {place} --algorithm mala"
    return Scaffold(paths, f"parvibench run {which}", f"python -m pytest {paths[1]}")
