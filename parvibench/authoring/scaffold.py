"""Templates of an algorithm or a task: they run unchanged, and each has a test."""

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
    """One line: the summary in tables."""

    name, kind = "NAME", "chains"  # kind: particles, chains or generator
    citation = "Author (year), arXiv:0000.00000"

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
from parvibench.checks import parametrize


@parametrize(CLASS, iterations=500)
def test_it_samples_what_it_should(check: Callable[[], None]) -> None:
    check()
'''

_TASK = '''"""NAME: a linear regression with a normal prior, as an example of a posterior."""

import torch
from torch import Generator, Tensor

import parvibench as pb

X = torch.tensor([[1.0, -1.2], [1.0, -0.4], [1.0, 0.1], [1.0, 0.7], [1.0, 1.5]], dtype=torch.float64)
Y = torch.tensor([-0.9, 0.2, 0.6, 1.9, 3.1], dtype=torch.float64)


def log_density(w: Tensor) -> Tensor:
    """Unnormalised, of one point (D,); `pb.task` vectorises and differentiates it."""
    residual = Y.to(w) - X.to(w) @ w
    return -0.5 * residual.square().sum() / 0.5**2 - 0.5 * w.square().sum()


def exact(n: int, generator: Generator) -> Tensor:
    """Independent draws, (n, D), where they are known: without them, `parvibench reference build` runs a long chain."""
    precision = X.mT @ X / 0.5**2 + torch.eye(2)
    factor = torch.linalg.cholesky(precision)
    mean = torch.cholesky_solve((X.mT @ Y / 0.5**2)[:, None], factor)
    noise = torch.randn(2, n, generator=generator, dtype=torch.float64)
    return (mean + torch.linalg.solve_triangular(factor.mT, noise, upper=True)).mT


OBJECT = pb.task(log_density, dim=2, name="NAME", exact=exact, coordinates=("intercept", "slope"))
'''

_TASK_TEST = '''"""NAME: exact draws against the density; a sampler that runs on it."""

from pathlib import Path

import torch
from MODULE import OBJECT

import parvibench as pb


def test_draws_and_score_are_of_one_law() -> None:
    """Stein's identities E s = 0 and E x s' = -I; five standard errors of 20,000 draws: false alarm below 1e-5."""
    x = OBJECT.exact(20_000, torch.Generator().manual_seed(1))
    score = OBJECT.target([0], "cpu", torch.float64).score(x.unsqueeze(0))[0]
    products = (x.unsqueeze(2) * score.unsqueeze(1)).flatten(1) + torch.eye(OBJECT.dim, dtype=x.dtype).flatten()
    for values in (score, products):
        assert (values.mean(0).abs() < 5 * values.std(0) / 20_000**0.5).all()


def test_a_sampler_runs_on_it(tmp_path: Path) -> None:
    options = {"replicates": 2, "budget": {"iterations": 20}, "workers": 0, "out": tmp_path, "tracking": False}
    assert not pb.run(tasks=[OBJECT], algorithms=["mala"], **options).failed
'''


class Scaffold(NamedTuple):
    """Files written, and the next commands."""

    files: tuple[Path, Path]
    run: str
    test: str


def scaffold(kind: str, name: str, folder: Path) -> Scaffold:
    """Write ``name``'s file and its test into a folder; ``InputError`` where name, files or folder do not allow it."""
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
    meant = {"MODULE": module, "NAME": name, "CLASS": attribute, "OBJECT": attribute}
    for path, text in zip(paths, texts, strict=True):
        path.write_text(re.sub(rf"\b({'|'.join(meant)})\b", lambda found: meant[found[0]], text), encoding="utf-8")
    place = f"{paths[0]}:{attribute}"
    which = f"--task banana --algorithm {place}" if kind == "algorithm" else f"--task {place} --algorithm mala"
    return Scaffold(paths, f"parvibench run {which}", f"python -m pytest {paths[1]}")
