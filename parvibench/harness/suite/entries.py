"""The parts of a suite file: tasks, algorithms, rows, grids of step sizes and profiles."""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from parvibench.core.budget import Budget
from parvibench.core.errors import InputError
from parvibench.core.result import StartKind


class Strict(BaseModel):
    """Frozen; unknown keys and other types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def as_entry(value: Any) -> Any:
    """An entry from its bare name."""
    return {"name": value} if isinstance(value, str) else value


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control characters or lone surrogates")
    return text


def as_tuple(value: Any) -> Any:
    """A list as a tuple: YAML has lists only."""
    return tuple(value) if isinstance(value, list) else value


class TaskEntry(Strict):
    """A task of the suite; ``splits`` sets the number of data splits (its replicates)."""

    name: str
    splits: int | None = Field(None, gt=0, le=100_000)


#: Part of a chain's path that is dropped: a share of the run below 1, else iterations.
BurnIn = Annotated[float, Field(ge=0, lt=1e9)]
Thinning = Annotated[int, Field(ge=1, le=1_000_000)]  #: Iterations between two recorded states of a chain.
#: Iterations between two checkpoints, or all of them; the end of the run is one in any case.
Checkpoints = Annotated[
    Annotated[int, Field(gt=0)] | tuple[Annotated[int, Field(gt=0)], ...], BeforeValidator(as_tuple)
]


class Entry(Strict):
    """How an algorithm is run; the fields from ``budget`` on go before the preset's, and those before the suite's."""

    label: Annotated[str, AfterValidator(_printable)] = Field("", max_length=80)  #: name in tables
    preset: str | None = None  #: of the algorithm: its settings and protocol, under those that are given here
    reason: str = Field("", max_length=400)  #: why these settings are fixed, in words for readers of the page
    step_from: str | None = None  #: label of the method whose tuned step size and options it takes
    settings: dict[str, Any] = Field(default_factory=dict)
    budget: Budget | None = None
    iterations: int | None = Field(None, gt=0)  #: a budget of so many
    particles: int | None = Field(None, gt=0, le=1_000_000)
    samples: int | None = Field(None, gt=1, le=1_000_000)
    burn_in: BurnIn | None = None
    thinning: Thinning | None = None
    start: StartKind | None = None  #: where its initial points are from
    checkpoints: Checkpoints | None = None  #: default: at shares of the budget
    #: particles or chains of the first replicate whose position at every checkpoint is stored, to draw their paths
    trajectories: int = Field(0, ge=0, le=1000)

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if self.budget is not None and self.iterations is not None:
            raise ValueError("budget and iterations: give one of the two")
        return self

    @property
    def display(self) -> str:
        """Label in tables."""
        return self.label or self.name  # type: ignore[attr-defined]

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings, with the preset's name as ``preset``."""
        return self.settings if self.preset is None else {"preset": self.preset, **self.settings}

    @property
    def limits(self) -> Budget | None:
        """Its own budget, if it has one."""
        return self.budget if self.iterations is None else Budget(iterations=self.iterations)


class AlgorithmEntry(Entry):
    """An algorithm of the suite under a label of its own."""

    name: str


class Published(Strict):
    """A published number that a row can be compared with."""

    pointer: str = Field(pattern=r"^[a-z]+(/[^/]+){4}$")  #: paper/table/dataset/algorithm/metric
    metric: str  #: ours
    checkpoint: int | None = Field(None, gt=0)  #: iteration at which ours is taken; default: the end
    samples: int | None = Field(None, gt=1)  #: how many are judged there
    factor: float = 1.0  #: times ours; -1 for a log likelihood, ours being negative
    #: pointer of the number of the same suite that it is divided by: times are compared as ratios only
    over: str = ""
    unjudged: str = ""  #: why ours is shown next to it and not judged, as where the settings are unpublished


class Row(Entry):
    """One run of a published table."""

    task: str
    algorithm: str
    replicates: int | None = Field(None, gt=0, le=100_000)  #: instead of the suite's
    #: which of the two it repeats where they differ: the text of the paper, or its authors' program
    follows: Literal["text", "program"] = "text"
    published: Annotated[tuple[Published, ...], BeforeValidator(as_tuple)] = ()
    #: ``task/label`` of a row that this one repeats with one change, named in ``reason``, to see what that changes
    varies: str = ""

    @property
    def name(self) -> str:
        """The algorithm."""
        return self.algorithm

    @property
    def title(self) -> str:
        """The name of the row: ``task/label``."""
        return f"{self.task}/{self.display}"

    def fits(self, pattern: str) -> bool:
        """Whether its title, or a pointer of its, fits a pattern such as ``bnn-*/svgd`` or ``sifg/table-1/Boston/*``."""
        return any(fnmatchcase(name, pattern) for name in (self.title, *(p.pointer for p in self.published)))


#: Ends of a log grid.
Ends = Annotated[tuple[float, float], BeforeValidator(as_tuple)]
Unit = Literal["x^2", "x", "rate"]  #: Units of step sizes, see ``tuning.step_unit``.
UNITS: tuple[Unit, ...] = ("x^2", "x", "rate")


class TuneSpec(Strict):
    """How step sizes are tuned: the same for all algorithms of the suite, see ``tuning``."""

    step_size: Ends | dict[Unit, Ends]  #: ends of the log grid, one for all units or one for each
    points: int = Field(9, ge=2, le=50)  #: number of grid points
    replicates: int = Field(3, ge=1, le=100)  #: tuning replicates (disjoint streams, rows that no result is judged by)
    metric: str | None = None  #: that decides; default: each task's primary metric
    #: label -> setting -> values to try, with a grid each
    options: dict[str, dict[str, list[Any]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for unit in self.units():
            low, high = self.ends(unit)
            if not 0 < low < high:
                raise ValueError(f"step_size needs 0 < low < high, got [{low:g}, {high:g}]")
        return self

    def units(self) -> tuple[Unit, ...]:
        """The units that have a grid."""
        return tuple(self.step_size) if isinstance(self.step_size, dict) else UNITS

    def ends(self, unit: str) -> tuple[float, float]:
        """Ends of the grid of a unit; ``InputError`` where the suite gives none."""
        if isinstance(self.step_size, tuple):
            return self.step_size
        if unit not in self.step_size:
            raise InputError(f"tune.step_size has no grid for steps in {unit}; add for example: {unit}: [1.0e-4, 1.0]")
        return self.step_size[unit]


class Tuned(Strict):
    """What ``parvibench tune`` chose, stored in the suite file."""

    step_size: dict[str, dict[str, float]]  #: task -> label -> chosen value
    #: task -> label -> options chosen with it
    settings: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    at_edge: list[str] = Field(default_factory=list)  #: ``task/label`` whose best value is at an end of its grid
    #: task -> label -> score evaluations spent on tuning
    score_evaluations: dict[str, dict[str, float]] = Field(default_factory=dict)
    grid: list[float] | dict[str, list[float]] = Field(default_factory=list)  #: the values tried, by unit
    replicates: int = 0


Patterns = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


class Profile(Strict):
    """Overrides of a suite under a name (``--profile``)."""

    replicates: int | None = Field(None, gt=0, le=100_000)
    budget: Budget | None = None
    particles: int | None = Field(None, gt=0, le=1_000_000)
    samples: int | None = Field(None, gt=1, le=1_000_000)
    contexts: int | None = Field(None, gt=1, le=1_000_000)
    start: StartKind | None = None
    compile: bool | None = None
    tune: TuneSpec | None = None
    tuned: Tuned | None = None
    only: Patterns | None = None  #: labels of the methods it keeps
    without: Patterns | None = None  #: labels of the methods it leaves out
    tasks: Patterns | None = None  #: names of the tasks it keeps
    rows: Patterns | None = None  #: patterns of the rows it keeps, see ``Row.fits``
    hours: float | None = Field(None, gt=0)  #: processor hours, forecast by ``run --dry-run`` or measured
