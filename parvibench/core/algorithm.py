"""The one adapter every algorithm sits behind."""

import inspect
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .errors import InputError, SettingsError, ShapeError, UnsupportedError, validation_text
from .streams import Streams as Streams  # for files of algorithms, all of which need the three
from .task import Problem as Problem
from .task import Task as Task

Kind = Literal["particles", "chains", "generator", "anchor"]
Source = Literal["paper", "code", "ours"]
#: What a sampler claims of its kernel: nothing, that it is ``adapted`` for at most half of a run and leaves every target
#: invariant from there on, that it is ``invariant`` from the first step on, or (True) that it is also reversible.
Exact = bool | Literal["invariant", "adapted"]


class AlgorithmSettings(BaseModel):
    """Base of all settings: frozen, unknown keys refused; every field says unit, meaning and source."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SteppedSettings(AlgorithmSettings):
    """Settings of every algorithm with a step size to tune."""

    step_size: float = Field(0.1, gt=0, description="eta: x + eta * score + sqrt(2 eta) * noise")


class Sourced(NamedTuple):
    """A setting of a preset and where it is from: a paper's text, its authors' code, or us."""

    value: Any
    source: Source


#: What a preset may contain in addition to settings: how long, with how many points, and which of a chain's states are judged.
PROTOCOL_KEYS = ("iterations", "particles", "samples", "burn_in", "thinning")

#: Preset name (the exact name of its task, with a suffix where one task has several) -> setting or protocol key -> value.
Presets = Mapping[str, dict[str, Sourced]]


def _sourced(source: Source, /, **values: Any) -> dict[str, Sourced]:
    """Values of a preset, all of one source."""
    return {key: Sourced(value, source) for key, value in values.items()}


#: Values that the paper states; of the authors' code, where the paper is silent or says otherwise; that neither gives.
paper, code, ours = (partial(_sourced, source) for source in get_args(Source))


@dataclass(frozen=True)
class Example:
    """How tests and checks run an algorithm; the defaults suit a sampler that scores every point once a step."""

    #: settings with which every branch runs within a few steps of eight points
    quick: Mapping[str, Any] = field(default_factory=dict)
    scores: int = 1  #: score evaluations of a step with them, per point; a Hessian-vector product is one more
    first_scores: int = 0  #: score evaluations before the first step, per point
    #: with these the samples have the moments of a unit Gaussian, from a start on its left half, ..
    settings: Mapping[str, Any] = field(default_factory=lambda: {"step_size": 0.1})
    steps: int = 100  #: ... after so many steps, ...
    points: int = 50  #: ... with so many points.
    samples: bool = True  #: False for an algorithm that looks for modes: its moments are not tested
    both_modes: bool = True  #: whether the same settings and steps suffice to find both of two modes, four apart
    skewed: bool = False  #: whether they also suffice for a skewed target
    brief_steps: int = 14  #: steps of the checks that run an algorithm several times


S = TypeVar("S", bound=AlgorithmSettings)
T = TypeVar("T")


class Method(ABC):
    """What a suite can name: an algorithm, or an anchor."""

    name: ClassVar[str]  #: canonical name
    version: ClassVar[int] = 1  #: raised on any change of results
    #: ``particles`` (the N points), ``chains`` (N parallel chains whose positions the harness records and thins),
    #: ``generator`` (any number of fresh draws), ``anchor`` (no steps at all)
    kind: ClassVar[Kind]
    #: capabilities the task must offer: ``score``, ``hvp``, ``full-batch``, ..
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    #: pydantic model of the settings; by default that of ``Algorithm[Settings, State]``, else none
    settings_type: ClassVar[type[AlgorithmSettings]] = AlgorithmSettings
    #: name -> setting -> value with its source: what a publication ran. Never acts by itself.
    presets: ClassVar[Presets] = {}
    #: a fixed N, or None to take the suite's (SRLD is one chain by definition)
    n_particles: ClassVar[int | None] = None
    #: most replicates in one call, or None; 1 for kernels that take one replicate at a time
    max_chunk: ClassVar[int | None] = None
    #: how many numbers of the device a step waits for, at most, per call of density or score, as trajectories of adaptive
    #: length do; True for any number. Such steps are plain under ``--compile``, or those of ``compiled_step``.
    host_bound: ClassVar[bool | int] = False
    #: True when ``step_size`` is no common factor of the velocity, as with Adam, or changes from step to step
    rescales: ClassVar[bool] = False
    citation: ClassVar[str] = ""  #: author (year), arXiv id
    summary: ClassVar[str] = ""  #: one line; of an algorithm by default the first of its docstring
    example: ClassVar[Example] = Example()  #: how tests and checks run it
    #: True where another program's run is charged once it is over, and may exceed the budget before it is stopped
    counted_afterwards: ClassVar[bool] = False
    library: ClassVar[str] = ""  #: external library that it runs, imported when it starts, or empty

    @classmethod
    def require_complete(cls) -> None:
        """Refuse a class that lacks what every method must have: ``InputError`` with a line for each lack."""
        if lacks := list(_lacks(cls)):
            raise InputError("\n".join(f"{cls.__name__}: {lack}" for lack in lacks))

    @classmethod
    def make_settings(cls, values: dict[str, Any] | None = None) -> AlgorithmSettings:
        """Validated settings, ``preset`` replaced by the values of that preset; ``SettingsError`` names each wrong key."""
        given = cls.expand_preset(values or {})
        try:
            return cls.settings_type.model_validate(given)
        except ValidationError as error:
            raise SettingsError(validation_text(error, cls.name, cls.settings_type, "no such setting")) from None

    @classmethod
    def expand_preset(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Settings with ``preset`` replaced by its values, under those given; ``SettingsError`` without such a preset."""
        given = dict(values)
        name = given.pop("preset", None)
        if name is None:
            return given
        if not isinstance(name, str) or name not in cls.presets:
            known = ", ".join(cls.presets) or "none"
            raise SettingsError(f"{cls.name}.preset: no preset named {name!r}. Known: {known}.")
        protocol = cls.protocol(name)
        return {k: v.value for k, v in cls.presets[name].items() if k not in protocol} | given

    @classmethod
    def protocol(cls, preset: str) -> dict[str, Any]:
        """What a preset contains that is no setting: a subset of ``PROTOCOL_KEYS`` with values."""
        keys = set(PROTOCOL_KEYS) - set(cls.settings_type.model_fields)
        return {key: sourced.value for key, sourced in cls.presets[preset].items() if key in keys}

    def compiled_step(self) -> Callable[..., Any] | None:
        """``step`` with a program of its own, for ``--compile``; None: a record of its operations."""
        return None

    def effective_step(self, settings: Any) -> float | None:
        """The factor that really multiplies the velocity, in the units of x^2; None without one, as of a generator."""
        if self.rescales or self.kind == "generator":
            return None
        return getattr(settings, "step_size", None)


def _lacks(cls: type[Method]) -> Iterator[str]:
    """What is missing or of the wrong kind in a class, and what would be right."""
    lower = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
    kinds = [k for k in get_args(Kind) if k != "anchor" or issubclass(cls, Anchor)]
    name, kind = getattr(cls, "name", None), getattr(cls, "kind", None)
    if name is None:
        yield f'no name: add name = "{lower}"'
    elif not isinstance(name, str) or not name or not name.isprintable():
        yield f"name is {name!r}, not a printable word"
    if kind is None:
        yield f'no kind: add kind = "chains" (one of {", ".join(kinds)})'
    elif kind not in kinds:
        yield f"kind is {kind!r}, not one of {', '.join(kinds)}"
    for method in sorted(getattr(cls, "__abstractmethods__", ())):
        yield f"no {method}: add def {method}({', '.join(inspect.signature(getattr(cls, method)).parameters)})"
    yield from shadowed(cls)
    if isinstance(cls.needs, str) or not all(isinstance(n, str) for n in cls.needs):
        yield f"needs is {cls.needs!r}, not a set of words such as frozenset({{'score'}})"
    if not (isinstance(cls.settings_type, type) and issubclass(cls.settings_type, AlgorithmSettings)):
        yield f"settings_type is {cls.settings_type!r}, not a class that derives from AlgorithmSettings"


def shadowed(method: Method | type[Method]) -> Iterator[str]:
    """The methods that an attribute of the same name hides, in a class or in an object, and what would be right."""
    owner = method if isinstance(method, type) else type(method)
    base = Anchor if issubclass(owner, Anchor) else Algorithm
    for name, value in {**vars(base), **vars(Method)}.items():
        routine = inspect.isroutine(value) and not name.startswith("_")
        if routine and not callable(held := getattr(method, name)):
            yield f"{name} is {held!r:.80}, an attribute that hides the method {name}(): give it another name"


class Anchor(Method):
    """An end of every leaderboard: samples without steps, drawn with the task itself, reference included."""

    kind = "anchor"

    @abstractmethod
    def draw(self, task: Task, problem: Problem, n: int, streams: Streams) -> tuple[Tensor, Tensor | None]:
        """Samples to judge, (R, n, D), and the rows (R, n) of the reference that they are, or None.

        Replicates, device and dtype are the problem's. ``UnsupportedError`` where the task has none.
        """


class Algorithm(Method, Generic[S, T]):
    """A sampler as three pure functions of a state (a NamedTuple of tensors, ints and further NamedTuples).

    The state holds all that the next step needs, optimiser moments included; its first field is
    ``x`` of shape (R, N, D) unless ``kind`` is ``generator``. Randomness comes from ``streams`` at
    the address the harness has set; nothing else is remembered between calls. Replicates must not
    see one another: bandwidths, clipping and norms are per replicate.
    """

    differentiates: ClassVar[bool] = False  #: True when ``step`` uses autograd (otherwise it runs in inference mode)
    resumable: ClassVar[bool] = True  #: False when the state cannot be saved
    #: a claim that `parvibench check` tests: True for a reversible kernel that leaves every target exactly invariant from
    #: its first step on, as Metropolis and Hastings's are; ``invariant`` where it is not reversible, ``adapted`` where
    #: that holds from half of the run on; False with discretisation error or annealing
    exact: ClassVar[Exact] = False
    #: fields of the state that may be beyond all numbers: proposals on their way, which a Metropolis step rejects, and
    #: densities of points of weight zero. A replicate has diverged when the rest of its state is not finite.
    may_overflow: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "summary" not in vars(cls) and cls.__doc__:
            cls.summary = inspect.cleandoc(cls.__doc__).split("\n")[0].removesuffix(".")
        if "settings_type" not in vars(cls):
            bases = [a for base in vars(cls).get("__orig_bases__", ()) for a in get_args(base)[:1]]
            for given in bases:
                if isinstance(given, type) and issubclass(given, AlgorithmSettings):
                    cls.settings_type = given

    @abstractmethod
    def init(self, problem: Problem, settings: S, streams: Streams, horizon: int) -> T:
        """First state, with streams at step 0; ``horizon``: iterations that the budget is expected to allow."""

    @abstractmethod
    def step(self, problem: Problem, settings: S, state: T, streams: Streams) -> T | tuple[T, Any]:
        """Next state; must not change the tensors of ``state`` that a caller may still hold.

        The state may come with an Info: a NamedTuple of (R,) tensors that tell of this step (``acceptance``,
        ``divergences``, ``tree_depth``, ``refit_loss``, ...). The harness keeps their means between checkpoints as
        metrics of the fields' names; nothing else depends on them.
        """

    def frozen(self, problem: Problem, settings: S, learnt: T, streams: Streams) -> T:
        """Chains at the problem's initial points; each ``step`` is a transition of the kernel that ``learnt`` has adapted, alone.

        ``UnsupportedError`` from a sampler that adapts, or another program's, without a method of its own.
        """
        if self.exact == "adapted" or self.library or "warmup_steps" in self.settings_type.model_fields:
            raise UnsupportedError(f"{self.name} offers no transitions without its adaptation")
        return self.init(problem, settings, streams, 1)

    def ended(self, problem: Problem, settings: S, state: T) -> bool:
        """Whether further steps gain nothing, as after a search: a run then ends, and leaves the rest of its budget."""
        return False

    def output(self, problem: Problem, settings: S, state: T, n: int, streams: Streams) -> Tensor:
        """Samples to judge, (R, n, D); for particles and chains the current positions, (R, N, D)."""
        x: Tensor = state.x  # type: ignore[attr-defined]
        return x


class ParticleState(NamedTuple):
    """The plainest state: points and nothing else."""

    x: Tensor  # (R, N, D)

    @classmethod
    def start(cls, problem: Problem) -> Self:
        """At the problem's initial points."""
        return cls(problem.init())


def state_and_info(stepped: Any) -> tuple[Any, Any]:
    """What ``step`` returned as (State, Info), with None for an Info that it does not give."""
    return stepped if type(stepped) is tuple else (stepped, None)


def take_steps(
    advance: Callable[..., Any], problem: Problem, settings: Any, state: Any, first: int = 0
) -> Iterator[tuple[Any, Any]]:
    """State and Info (or None) after each further step; the caller sets the gradient mode and says when to stop.

    ``advance`` is ``Algorithm.step`` or a recorded one, ``first`` the number of steps taken before; the problem's
    streams move to the address of every step. ``BudgetExhausted`` where the budget allows no further one.
    """
    streams = problem.streams
    for streams.step in itertools.count(first):
        state, info = state_and_info(advance(problem, settings, state, streams))
        yield state, info


def require_samples(samples: Any, replicates: int, n: int, dim: int, name: str) -> None:
    """``ShapeError`` unless ``output`` of the algorithm ``name`` gave real numbers, (R, at least n, D)."""
    expected = f"expected real numbers of shape ({replicates}, at least {n}, {dim})"
    if not isinstance(samples, Tensor) or not samples.is_floating_point():
        kind = samples.dtype if isinstance(samples, Tensor) else type(samples).__name__
        raise ShapeError(f"output of {name} gave {kind}, {expected}")
    found = tuple(samples.shape)
    if len(found) != 3 or found[::2] != (replicates, dim) or found[1] < n:
        raise ShapeError(f"output of {name} gave {found}, {expected}")


def floating_tensors(state: Any) -> list[Tensor]:
    """The floating tensors of a state of any nesting, each (R, ...)."""
    return [t for t in tree_leaves(state) if isinstance(t, Tensor) and t.is_floating_point() and t.dim() > 0]


def grounded(state: Any, may_overflow: frozenset[str]) -> Any:
    """A state without the fields that may overflow."""
    return [v for k, v in state._asdict().items() if k not in may_overflow] if may_overflow else state


def finite_replicates(state: Any, may_overflow: frozenset[str] = frozenset()) -> Tensor:
    """Which replicates of a state are finite in every floating tensor of the other fields: (R,) bool."""
    tensors = floating_tensors(grounded(state, may_overflow))
    finite = [torch.isfinite(t).flatten(1).all(1) if t.dim() > 1 else torch.isfinite(t) for t in tensors]
    return torch.stack(finite).all(0)
