"""A task made of a log density: ``pb.task``."""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable
from torch.func import vmap

from parvibench.core.errors import InputError, ShapeError
from parvibench.core.reference import Reference
from parvibench.core.target import InJax, Target
from parvibench.core.task import DENSITY_METRICS, Task

from .starts import initial_points

LogDensity = Callable[[Tensor], Any]  #: The density of a point, (D,) -> (), or of many, (n, D) -> (n,).
Draw = Callable[[int, Generator], Tensor]  #: How many points, and their generator -> points, (n, D).

#: Exact transport plans of thousands of points would take most of a floor's time; the sliced distance stays.
METRICS = (*(metric for metric in DENSITY_METRICS if metric != "w2"), "ess_tail")
Fit = Literal["pathfinder", "laplace"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TRIED = 4  #: Points at which a density is tried.
#: Relative difference of a score from the log density's central differences, and of two scores of one density.
_AGREEMENT, _SAME = 1e-3, 1e-3
#: Distances from the start, in its spreads, and coordinates, where the scores in single and double precision are compared.
_FAR, _AXES = (100, 1000, 3000, 10_000), 20
#: A score in single precision that is too long by more than this share is reported; too short are those that saturate.
_OFF = 0.05
T = TypeVar("T", bound="FunctionTask")


def task(
    log_density: LogDensity,
    dim: int,
    *,
    initial: Draw | Sequence[float] | Tensor | Fit | None = None,
    name: str | None = None,
    batched: bool = False,
    score: Callable[[Tensor], Any] | None = None,
    exact: Draw | None = None,
    coordinates: Sequence[str] = (),
    summary: str = "",
) -> FunctionTask:
    """A user-defined task: what suites, ``run``, ``evaluate`` and ``reference build`` can be given.

    Args:
        log_density: unnormalised log density on the whole of R^D in nats, of a point (D,) -> scalar, in PyTorch; it is
            vectorised by ``torch.func.vmap`` and differentiated by autograd.
        dim: D.
        initial: where samplers start: ``(n, generator) -> (n, D)``, or the mean (D,) of a unit Gaussian; default
            N(0, I). ``"pathfinder"`` or ``"laplace"``: draws of such a fit, which begins at N(0, I) and which the run's
            budget pays for.
        name: of the task in tables, stores and references; default: the function's.
        batched: whether ``log_density`` and ``score`` take many points at once, (n, D) -> (n,) and (n, D) -> (n, D).
        score: the gradient, (D,) -> (D,), where the density is not written in PyTorch (Stan, NumPyro, JAX); both
            functions are then called with tensors outside of ``vmap``, and may return arrays.
        exact: ``(n, generator) -> (n, D)``, independent exact draws, if they are known.
        coordinates: D names, for reports.
        summary: one line for tables.

    Raises:
        InputError: the name is not one; the density does not give one finite number per point at the start, depends on
            the other points, cannot be vectorised or differentiated; the score is not its gradient.

    >>> import torch, parvibench as pb
    >>> ring = pb.task(lambda x: -8 * (x.norm() - 2) ** 2, dim=2, initial=[2.0, 0.0], name="ring")
    """
    called = name or getattr(log_density, "__name__", "").replace("_", "-")
    return function_task(
        FunctionTask, called, dim, initial, coordinates,
        summary=summary or f"a user-defined density, {dim} dimensions", tags=frozenset({"own"}), log_density=log_density,
        own_score=score, batched=batched, draw=exact,
    )  # fmt: skip


def function_task(kind: type[T], name: str, dim: int, initial: Any, coordinates: Sequence[str], **fields: Any) -> T:
    """A task of a function, checked; arguments and errors as of ``task``, ``fields`` are the others of the task's."""
    label_of(name)
    if not isinstance(dim, int) or dim < 1:
        raise InputError(f"{name}: dim is the number of coordinates, a whole number from 1 on; got {dim!r}")
    if coordinates and len(coordinates) != dim:
        raise InputError(f"{name}: {len(coordinates)} coordinates are named, and dim={dim}")
    fields |= initial_points(name, initial, dim)
    made = kind(name=name, dim=dim, citation="", metrics=METRICS, coordinates=tuple(coordinates), **fields)
    return checked(made)


def label_of(name: str) -> str:
    """The name, if it can be a task's; else ``InputError``."""
    if not _NAME.fullmatch(name):
        raise InputError(f"name={name!r}: a task's name has letters, digits, '.', '-' and '_', as name='my-posterior'")
    return name


@dataclass(frozen=True, kw_only=True)
class FunctionTask(Task):
    """A density given as a function."""

    log_density: LogDensity  #: of a point, or of many if ``batched``
    own_score: Callable[[Tensor], Any] | None = None  #: likewise; None: by autograd
    both: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None  #: of points (n, D), where it is not a call of each
    batched: bool = False
    start: Draw  #: initial points
    draw: Draw | None = None  #: exact draws
    coordinates: tuple[str, ...] = ()  #: names, or none
    fingerprint: str = field(default="", compare=False)  #: of the density's values: data are no part of its source

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> FunctionTarget:
        """The density."""
        return FunctionTarget(self)

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Initial points, (R, n, D)."""
        return torch.stack([_drawn(self, "initial", self.start, n, g) for g in generators])

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64; ``UnsupportedError`` without an exact sampler."""
        return super().exact(n, generator) if self.draw is None else _drawn(self, "exact", self.draw, n, generator)

    def reference(self) -> Reference | None:
        """The reference of this name, or None; ``InputError`` where it was made of another density."""
        found = super().reference()
        if found is None or found.scores is None:
            return found
        own = f"{self.name}: its reference was made of another density"
        again = "build it again: parvibench reference build FILE.py:OBJECT, or give the task another name"
        if found.draws.shape[1] != self.dim:
            raise InputError(f"{own}, of {found.draws.shape[1]} dimensions and not {self.dim}; {again}")
        recorded = found.scores[:_TRIED]
        scores = self.target([0], "cpu", torch.float64).score(found.draws[None, : len(recorded)])[0]
        if not bool(((scores - recorded).norm(dim=1) <= _SAME * (1 + recorded.norm(dim=1))).all()):
            raise InputError(f"{own}; {again}")
        return found

    @property
    def source(self) -> str:
        """What names this density in a cell's key: its source, where there is any, and its values at the start."""
        digest = hashlib.sha256((self.fingerprint + self.begins.removeprefix("task")).encode())
        for function in filter(None, (self.log_density, self.own_score, self.start, self.draw)):
            wrapped = getattr(function, "__wrapped__", function)
            file = inspect.getsourcefile(wrapped) if inspect.isfunction(wrapped) else None
            if file is not None and Path(file).is_file():
                digest.update(Path(file).read_bytes())
        return digest.hexdigest()


class FunctionTarget(Target):
    """The density of a ``FunctionTask``."""

    def __init__(self, task: FunctionTask) -> None:
        self.task, self.dim = task, task.dim
        self.undefined: Tensor | bool = False  #: whether the log density of a finite point was NaN or +inf

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log density in nats: (R, N, D) -> (R, N); differentiated by the score where one is given."""
        if self.task.own_score is not None and x.requires_grad and torch.is_grad_enabled():
            return _ByScore.apply(x, self)  # type: ignore[no-untyped-call]
        found = self._called(self.task.log_density, x, ())
        self.undefined = self.undefined | (~(found.detach() < math.inf) & x.detach().isfinite().all(-1)).any()
        return found

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        if self.task.own_score is None:
            return super().score(x, batch)
        return self._called(self.task.own_score, x, (self.dim,))

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""
        tracked = x.requires_grad and torch.is_grad_enabled()
        if self.task.both is not None and not tracked:
            values, scores = self.task.both(x.reshape(-1, self.dim))
            return values.to(x).reshape(x.shape[:-1]), scores.to(x).reshape(x.shape)
        own = self.task.own_score is not None or tracked
        return super().log_density_and_score(x, batch) if own else self.both_by_autograd(x, batch)

    def in_jax(self) -> InJax | None:
        """The density, where it is written in JAX."""
        return getattr(self.task.log_density, "in_jax", None)

    def _called(self, function: Callable[[Tensor], Any], x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A function's values at states (R, N, D), each of that shape."""
        points = x.reshape(-1, self.dim).to(self.task.precision or x.dtype)
        try:
            if self.task.batched:
                values = tensor_of(function(points))
            elif self.task.own_score is None:
                values = vmap(function)(points)
            else:  # no PyTorch inside: nothing to vectorise
                values = torch.stack([_shaped(tensor_of(function(point)), shape) for point in points])
        except (RuntimeError, TypeError) as error:
            if not any(words in str(error) for words in _OF_THE_HOST):
                raise
            raise InputError(
                f"{self.task.name}: the function combines points on {x.device} with arrays or tensors on the CPU; move them "
                "with .to(x.device), or run with --device cpu"
            ) from error
        return _shaped(values.to(x), (len(points), *shape)).reshape(*x.shape[:-1], *shape)


#: In PyTorch's messages about a function that mixes devices.
_OF_THE_HOST = ("on the same device", "device type tensor to numpy")


def _shaped(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Values of a function in that shape, axes of length one aside; ``ShapeError`` for others."""
    if values.numel() != math.prod(shape):
        raise ShapeError(f"gave shape {tuple(values.shape)}, not {shape}")
    return values.reshape(shape)


def tensor_of(value: Any) -> Tensor:
    """A tensor; of numbers and arrays all digits."""
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value, dtype=np.float64))


class _ByScore(torch.autograd.Function):
    """A log density whose gradient is the score that was given with it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: FunctionTarget) -> Tensor:
        ctx.save_for_backward(x)
        ctx.target = target
        return target.log_density(x.detach())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, None]:
        """The score times the weight of each point."""
        return weight[..., None] * ctx.target.score(ctx.saved_tensors[0]), None


def _drawn(task: FunctionTask, what: str, draw: Draw, n: int, generator: Generator) -> Tensor:
    x = torch.as_tensor(draw(n, generator))
    if x.shape != (n, task.dim):
        raise InputError(f"{task.name}: {what}(n={n}, generator) gave shape {tuple(x.shape)}, not ({n}, {task.dim})")
    return x.to(torch.float64)


def checked(task: T, *, derived: bool = False) -> T:
    """The task with its precision, fingerprint and whether it offers Hessian products; errors as of ``task``.

    The score of a density that is ``derived`` by a library from the density itself is not compared with differences, which
    are wrong where a density bends sharply, an integrator adapts or a neighbour is rejected.
    """
    with torch.inference_mode(False), torch.enable_grad():
        x = _drawn(task, "initial", task.start, _TRIED, Generator().manual_seed(0))
        if not bool(x.isfinite().all()):
            raise InputError(f"{task.name}: initial gave points that are not finite")
        density, task = _tried(task, x)
        if len(bad := (~density.isfinite()).nonzero()):
            first = int(bad[0])
            raise InputError(
                f"{task.name}: log_density is {float(density[first]):g} at the initial point {_shown(x[first])}; it must be "
                "finite wherever samplers start: choose `initial` in the support, and map bounded parameters to all of R"
            )
        _repeat(task, "log_density", x)
        alone = task.target([0], "cpu", x.dtype).log_density(x[None, 1:2])[0]
        if not torch.allclose(alone, density[1:2], rtol=1e-4, atol=1e-4):
            raise InputError(
                f"{task.name}: log_density of a point changes with the other points of the batch ({float(alone[0]):g} alone, "
                f"{float(density[1]):g} among {len(x)}): sum over the last axis only, as in x.square().sum(-1)"
            )
        score = _scored(task, x)
        if task.own_score is not None:
            _repeat(task, "score", x)
            if not derived:
                _compare(task, x, score)
        if task.precision is None:
            _far_out(task, x)
        provides = {"score", "full-batch"} | ({"hvp"} if _differentiates_twice(task, x) else set())
        if task.draw is not None:
            _drawn(task, "exact", task.draw, 2, Generator().manual_seed(0))
            provides.add("exact")
        # Few digits: the last ones differ between machines.
        numbers = " ".join(f"{v:.4g}" for v in [*density.tolist(), *score.flatten().tolist()])
    return replace(task, provides=frozenset(provides), fingerprint=numbers)


def _tried(task: T, x: Tensor) -> tuple[Tensor, T]:
    """The densities at points (n, D) and the task in the precision its function takes: data of one type may be part of it."""
    found, failures = dict[torch.dtype, Tensor](), list[Exception]()
    for precision in (torch.float64, torch.float32):
        try:
            found[precision] = _values(replace(task, precision=precision), x)
        except InputError:
            raise
        except Exception as error:
            failures.append(error)
    if not found:
        raise InputError(f"{task.name}: {_failure(task, x, failures[0])}") from failures[0]
    only = next(iter(found)) if len(found) == 1 or task.own_score is not None else None
    return next(iter(found.values())), replace(task, precision=only)


def _values(task: FunctionTask, x: Tensor) -> Tensor:
    """Densities (n,) at points (n, D), of the right shape and kind."""
    point = x if task.batched else x[0]
    given = task.log_density(point.to(task.precision or x.dtype))
    shape, wanted = tuple(np.shape(given)), (len(x),) if task.batched else ()
    if shape != wanted:
        text = f"log_density gave shape {shape} for {'points' if task.batched else 'a point'} of shape {tuple(point.shape)}"
        hint = "" if task.batched or shape != (1,) else "; write .sum() or .squeeze()"
        hint = "; for a function of a single point leave batched=True out" if task.batched and not shape else hint
        raise InputError(f"{task.name}: {text}, not {wanted}{hint}")
    if not isinstance(given, Tensor) and task.own_score is None:
        raise InputError(_no_gradient(task, f"it gave a {type(given).__name__}"))
    return task.target([0], "cpu", x.dtype).log_density(x[None])[0].detach()


def _failure(task: FunctionTask, x: Tensor, error: Exception) -> str:
    """Whether the function itself fails, or its vectorisation."""
    first = str(error).strip().split("\n")[0][:300]
    shape = tuple(x.shape) if task.batched else (task.dim,)
    failed = f"log_density fails for a tensor of shape {shape}: {type(error).__name__}: {first}"
    if "random operation" in first:  # vmap refuses them
        return f"log_density {_RANDOM}: it draws random numbers; draw them once, outside of it"
    if task.batched or task.own_score is not None:
        return failed
    for precision in (torch.float64, torch.float32):
        try:
            task.log_density(x[0].to(precision))
        except Exception:
            continue
        return (
            f"log_density cannot be vectorised ({type(error).__name__}: {first}): use torch.where for branches that depend on "
            "the point, and no .item(); or write it for many points, (n, D) -> (n,), and say batched=True"
        )
    return f"{failed}; is dim={task.dim} right?"


def _scored(task: FunctionTask, x: Tensor) -> Tensor:
    """Scores at points (n, D); ``InputError`` where there are none."""
    try:
        score = task.target([0], "cpu", x.dtype).score(x[None])[0].detach()
    except ShapeError as error:
        raise InputError(f"{task.name}: score {error}, that of the point{'s' * task.batched} given to it") from error
    except Exception as error:
        first = str(error).strip().split("\n")[0][:200]
        if task.own_score is not None:
            raise InputError(f"{task.name}: score fails: {type(error).__name__}: {first}") from error
        raise InputError(_no_gradient(task, first)) from error
    if len(bad := (~score.isfinite().all(1)).nonzero()):
        worst = int(bad[0])
        where = f"the initial point {_shown(x[worst])}: {_shown(score[worst])}"
        raise InputError(f"{task.name}: the score is not finite at {where}")
    return score


def same_again(first: Tensor, again: Tensor, *, single: bool) -> bool:
    """Whether two evaluations at the same points agree but for rounding, in single or double precision."""
    tolerance = 1e-4 if single else 1e-7
    return torch.allclose(first, again, rtol=tolerance, atol=tolerance, equal_nan=True)


def _repeat(task: FunctionTask, what: Literal["log_density", "score"], x: Tensor) -> None:
    """Refuse a function that gives other values when it is called again at the same points (n, D)."""
    function = getattr(task.target([0], "cpu", x.dtype), what)
    first, again = (function(x[None]).detach().flatten() for _ in range(2))
    if not same_again(first, again, single=task.precision is torch.float32):
        i = int((first - again).abs().nan_to_num(torch.inf).argmax())
        values = f"{float(first[i]):.6g}, then {float(again[i]):.6g} at one point"
        raise InputError(f"{task.name}: {what} {_RANDOM} ({values}): draw random numbers once, outside of it")


_RANDOM = "gives other values when it is called again, so that it is no function of the point"


def _no_gradient(task: FunctionTask, why: str) -> str:
    return (
        f"{task.name}: log_density is not differentiable by autograd ({why}): compute with PyTorch from its argument on, "
        "without .item(), .detach() or NumPy; or give the gradient as score="
    )


def _compare(task: FunctionTask, x: Tensor, score: Tensor) -> None:
    """Refuse a score that is not the derivative of the log density along random directions, by central differences."""
    target = task.target([0], "cpu", x.dtype)
    along = torch.randn(x.shape, generator=Generator().manual_seed(1), dtype=x.dtype)
    single = task.precision is torch.float32
    step = 1e-2 if single else 1e-4
    up, down = (target.log_density((x + sign * step * along)[None])[0] for sign in (1, -1))
    slope, claimed = (up - down) / (2 * step), (score * along).sum(1)
    tolerance = (0.05 if single else _AGREEMENT) * (1 + slope.abs())
    if bool(((slope - claimed).abs() > tolerance).any()):
        i = int((slope - claimed).abs().argmax())
        raise InputError(
            f"{task.name}: score is not the gradient of log_density: at {_shown(x[i])} it says {float(claimed[i]):.6g} along "
            f"{_shown(along[i])}, differences of log_density say {float(slope[i]):.6g}"
        )


def _far_out(task: FunctionTask, x: Tensor) -> None:
    """Warn where the score in single precision is off far from the initial points (n, D), as runs in float32 would have it."""
    centre, axes = x.mean(0), torch.eye(task.dim, dtype=x.dtype)[:_AXES]
    target, spread = task.target([0], "cpu", x.dtype), float((x - centre).abs().max()) or 1.0
    for distance in _FAR:
        steps = torch.cat([axes, -axes]) * distance * spread
        points = torch.cat([steps, centre + steps])[None].float()
        try:
            single, double = (target.score(points.to(dtype))[0].double() for dtype in (torch.float32, torch.float64))
        except Exception:  # a density may be undefined so far out
            return
        off = single.norm(dim=1) / double.norm(dim=1) - 1
        if len(off := off[off.isfinite()]) and (worst := float(off.max())) > _OFF:
            warnings.warn(
                f"{task.name}: the score in single precision is {worst:.0%} too long at a distance of {distance * spread:.3g} from "
                "the start, as that of logsumexp is where its terms are large: write log_density(x.double()), or take differences "
                "before the logarithm, (terms - terms.detach().max()).exp().sum().log()",
                stacklevel=4,
            )
            return


def _differentiates_twice(task: FunctionTask, x: Tensor) -> bool:
    leaf = x[None].clone().requires_grad_()
    try:
        score = task.target([0], "cpu", x.dtype).score(leaf)
        (product,) = torch.autograd.grad(score.sum(), leaf)
    except Exception:
        return False
    return bool(product.isfinite().all())


def _shown(values: Tensor) -> str:
    head = ", ".join(f"{v:.3g}" for v in values[:6].tolist())
    return f"[{head}{', ...' if len(values) > 6 else ''}]"
