"""Suite files: read, validated, with every problem reported by file, line and key path.

A suite is data. It names tasks and algorithms that are installed; it runs no code of its own.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from parvibench.core import registry
from parvibench.core.budget import Budget
from parvibench.core.errors import InputError, SuiteError, UnknownNameError, known_keys, printable, problem_text

MAX_BYTES = 1_000_000
MAX_NODES = 10_000
MAX_DEPTH = 30


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _as_entry(value: Any) -> Any:
    """A bare name stands for an entry of that name."""
    return {"name": value} if isinstance(value, str) else value


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control characters or lone surrogates")
    return text


def _as_tuple(value: Any) -> Any:
    """YAML has lists only."""
    return tuple(value) if isinstance(value, list) else value


class TaskEntry(_Strict):
    """A task of the suite; ``splits`` sets the number of data splits (its replicates)."""

    name: str
    splits: int | None = Field(None, gt=0, le=100_000)


#: Part of a chain's path that is dropped: a share of the run below 1, else iterations.
BurnIn = Annotated[float, Field(ge=0, lt=1e9)]
#: Iterations between two recorded states of a chain.
Thinning = Annotated[int, Field(ge=1, le=1_000_000)]


class AlgorithmEntry(_Strict):
    """An algorithm of the suite under a label of its own."""

    name: str
    label: Annotated[str, AfterValidator(_printable)] = Field("", max_length=80)
    preset: str | None = None  #: of the algorithm: its settings and protocol, under those that are given here
    reason: str = Field("", max_length=400)  #: why these settings are fixed, in words for readers of the page
    step_from: str | None = None  #: label of the method whose tuned step size and options it takes
    settings: dict[str, Any] = Field(default_factory=dict)
    #: with ``step_from``: scale that step so that step times drift is the other's, in root mean square (see ``tuning``)
    match_drift: bool = False
    budget: Budget | None = None  #: instead of the preset's or the suite's; likewise the other parts of the protocol
    particles: int | None = Field(None, gt=0, le=1_000_000)
    samples: int | None = Field(None, gt=1, le=1_000_000)
    burn_in: BurnIn | None = None
    thinning: Thinning | None = None

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings, with the preset's name as ``preset``."""
        return self.settings if self.preset is None else {"preset": self.preset, **self.settings}

    @property
    def display(self) -> str:
        """Label in tables."""
        return self.label or self.name


#: Ends of a log grid.
Ends = Annotated[tuple[float, float], BeforeValidator(_as_tuple)]
#: Units of step sizes, see ``tuning.step_unit``.
Unit = Literal["x^2", "x", "rate"]
UNITS: tuple[Unit, ...] = ("x^2", "x", "rate")


class TuneSpec(_Strict):
    """How step sizes are tuned: the same for all algorithms of the suite, see ``tuning``."""

    step_size: Ends | dict[Unit, Ends]  #: ends of the log grid, one for all units or one for each
    points: int = Field(9, ge=2, le=50)  #: number of grid points
    replicates: int = Field(3, ge=1, le=100)  #: tuning replicates (disjoint streams, rows that no result is judged by)
    share: float = Field(0.25, gt=0, le=1)  #: budget of the first runs, as a share of the suite's
    metric: str | None = None  #: to choose by; default: each task's primary metric
    finalists: int = Field(2, ge=1, le=10)  #: best values of a method that run for the whole budget
    #: label -> setting -> values to choose from, each with a grid of its own
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
        if not isinstance(self.step_size, dict):
            return self.step_size
        if unit not in self.step_size:
            raise InputError(f"tune.step_size has no grid for steps in {unit}; add for example: {unit}: [1.0e-4, 1.0]")
        return self.step_size[unit]


class Tuned(_Strict):
    """What ``parvibench tune`` chose, stored in the suite file."""

    step_size: dict[str, dict[str, float]]  #: task -> label -> chosen value
    #: task -> label -> options chosen with it
    settings: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    at_edge: list[str] = Field(
        default_factory=list
    )  #: ``task/label`` whose best value lies on the end of what was tried
    #: task -> label -> score evaluations spent on tuning
    score_evaluations: dict[str, dict[str, float]] = Field(default_factory=dict)
    grid: list[float] | dict[str, list[float]] = Field(default_factory=list)  #: the values tried, by unit
    replicates: int = 0


class Profile(_Strict):
    """Overrides of a suite under a name (``--profile``)."""

    replicates: int | None = Field(None, gt=0, le=100_000)
    budget: Budget | None = None
    particles: int | None = Field(None, gt=0, le=1_000_000)
    samples: int | None = Field(None, gt=1, le=1_000_000)
    contexts: int | None = Field(None, gt=1, le=1_000_000)
    tune: TuneSpec | None = None
    tuned: Tuned | None = None
    only: Annotated[tuple[str, ...] | None, BeforeValidator(_as_tuple)] = None  #: labels of the methods it keeps


Entries = Annotated[tuple[Annotated[TaskEntry, BeforeValidator(_as_entry)], ...], BeforeValidator(_as_tuple)]
Methods = Annotated[tuple[Annotated[AlgorithmEntry, BeforeValidator(_as_entry)], ...], BeforeValidator(_as_tuple)]


class Suite(_Strict):
    """A suite file, validated. Field by field as in the README."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    description: str = ""
    tasks: Entries = Field(min_length=1)
    algorithms: Methods = Field(min_length=1)
    replicates: int = Field(10, gt=0, le=100_000)
    seed: int = Field(0, ge=0, lt=2**63)
    budget: Budget
    particles: int | None = Field(None, gt=0, le=1_000_000)
    samples: int | None = Field(None, gt=1, le=1_000_000)
    burn_in: BurnIn = 0.5
    thinning: Thinning = 1
    contexts: int | None = Field(None, gt=1, le=1_000_000)  # decisions of sequential tasks
    metrics: Annotated[tuple[str, ...] | None, BeforeValidator(_as_tuple)] = None
    dtype: Literal["float32", "float64"] = "float32"
    match: Literal["effective-step"] | None = None
    tune: TuneSpec | None = None
    tuned: Tuned | None = None
    profiles: dict[str, Profile] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _unique(self) -> Self:
        _refuse_repeats("task", [t.name for t in self.tasks])
        _refuse_repeats("algorithm label", [a.display for a in self.algorithms])
        return self

    def with_profile(self, name: str | None) -> Suite:
        """The suite under a profile, by default its first one if it has any; ``InputError`` without such a profile."""
        if name is None:
            if not self.profiles:
                return self
            name = next(iter(self.profiles))
        if name not in self.profiles:
            raise UnknownNameError(f"profile of suite {self.name!r}", name, self.profiles)
        overrides = {k: v for k, v in self.profiles[name] if v is not None and k != "only"}
        if (only := self.profiles[name].only) is not None:
            overrides["algorithms"] = tuple(a for a in self.algorithms if a.display in only)
        return self.model_copy(update={**overrides, "profiles": {}})

    def resolved(self) -> dict[str, Any]:
        """As plain data, for provenance."""
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=False)


def _refuse_repeats(kind: str, names: list[str]) -> None:
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise ValueError(f"{kind} given twice: {', '.join(repeated)} (tell them apart by 'label')")


def shipped() -> dict[str, Traversable]:
    """Suites that come with the package: name -> file."""
    folder = files("parvibench.suites")
    return {
        f.name.removesuffix(".yaml"): f
        for f in sorted(folder.iterdir(), key=lambda f: f.name)
        if f.name.endswith(".yaml")
    }


def load_suite(name: str) -> Suite:
    """A shipped suite by name, or a suite file by path (ending in .yaml or .yml).

    Raises:
        UnknownNameError: no shipped suite of that name.
        SuiteError: the file is malformed; the message gives line and key path of every problem.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise SuiteError(f"{name}: no such file")
        return parse_suite(path.read_bytes(), str(path))
    known = shipped()
    if name not in known:
        raise UnknownNameError("suite", name, known, "A suite of your own is named by its path, ending in .yaml.")
    return parse_suite(known[name].read_bytes(), f"{name}.yaml")


def parse_suite(content: bytes, source: str) -> Suite:
    """Validate the bytes of a suite file, ``source``; ``SuiteError`` with one line per problem."""
    tree = _read_yaml(content, source)
    plain = _plain(tree, source)
    try:
        suite = Suite.model_validate(plain)
    except ValidationError as error:
        problems = dict.fromkeys(_problem(tree, source, e) for e in error.errors())
        raise SuiteError("\n".join(problems)) from None
    _check_names(suite, tree, source)
    return _labelled(suite, source)


def _labelled(suite: Suite, source: str) -> Suite:
    """The suite with installed algorithms, ``module:Class``, under their own names where it gives no label."""
    entries = tuple(
        a.model_copy(update={"label": registry.load_method(a.name).name})
        if registry.is_elsewhere(a.name) and not a.label
        else a
        for a in suite.algorithms
    )
    try:
        _refuse_repeats("algorithm label", [a.display for a in entries])
    except ValueError as error:
        raise SuiteError(f"{source}: algorithms: {error}") from None
    return suite.model_copy(update={"algorithms": entries})


def _read_yaml(content: bytes, source: str) -> CommentedMap:
    if len(content) > MAX_BYTES:
        raise SuiteError(f"{source}: {len(content)} bytes; a suite file has at most {MAX_BYTES}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{source}: not a text file (byte {error.start} is not UTF-8)") from None
    # The parser takes a second for ten thousand nodes, and a minute for a thousand brackets in one another.
    if text.count("\n") + text.count(",") > MAX_NODES or _bracket_depth(text) > MAX_DEPTH:
        limits = f"at most {MAX_NODES} lines and entries, {MAX_DEPTH} deep"
        raise SuiteError(f"{source}: too large: a suite file has {limits}")
    try:
        tree = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = (error.problem or "not valid YAML").split("\n")[0]
        raise SuiteError(f"{source}{line}: {problem}") from None
    except (YAMLError, ValueError, RecursionError, AttributeError, KeyError, TypeError, IndexError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise SuiteError(f"{source}: not valid YAML: {reason}") from None
    if not isinstance(tree, CommentedMap):
        found = "nothing" if tree is None else type(tree).__name__.lower()
        raise SuiteError(f"{source}:1: a suite is a mapping with keys such as name, tasks, algorithms; found {found}")
    return tree


def _bracket_depth(text: str) -> int:
    """Most brackets open at a time, those in quotes and comments included."""
    deepest = depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth = max(0, depth - 1)
    return deepest


def _plain(tree: Any, source: str) -> Any:
    """Plain Python data; refuses tags, and trees that aliases have blown up."""
    nodes = 0

    def convert(node: Any, path: str, depth: int) -> Any:
        nonlocal nodes
        nodes += 1
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            raise SuiteError(f"{source}: too large at {path or 'the top'} (aliases that repeat themselves?)")
        tag = getattr(getattr(node, "tag", None), "value", None)
        if tag is not None and not str(tag).startswith("tag:yaml.org,2002:"):
            raise SuiteError(f"{source}: {path or 'the top'}: tag {tag} is not allowed; a suite is plain data")
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str) or not key.isprintable():
                    raise SuiteError(f"{source}: {path or 'the top'}: key {key!a:.60} is no plain text")
            return {str(k): convert(v, f"{path}.{k}" if path else str(k), depth + 1) for k, v in node.items()}
        if isinstance(node, list):
            return [convert(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(node)]
        if isinstance(node, bool) or node is None:
            return node
        if isinstance(node, str) and printable(node) != node:
            raise SuiteError(f"{source}: {path or 'the top'}: control characters or lone surrogates in {node[:40]!a}")
        for kind in (int, float, str):
            if isinstance(node, kind):
                return kind(node)
        raise SuiteError(f"{source}: {path}: {type(node).__name__} values are not allowed; use text or numbers")

    return convert(tree, "", 0)


def _problem(tree: Any, source: str, error: Any) -> str:
    """One line for one pydantic error: file:line: key path: what is wrong."""
    loc = [p for p in error["loc"] if not (isinstance(p, str) and p.startswith("function-"))]
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in loc).lstrip(".")
    known = known_keys(Suite, loc[:-1]) if error["type"] == "extra_forbidden" else None
    return f"{source}:{_line(tree, loc)}: {problem_text(error, path or 'suite', known)}"


def _line(tree: Any, loc: list[Any]) -> int:
    """Line of the deepest node of ``loc`` that the file holds, counted from 1."""
    line, node = 1, tree
    for part in loc:
        if not hasattr(node, "lc"):
            break
        try:
            data = node.lc.data
            line = (data[part][0] if data and part in data else node.lc.line) + 1
            node = node[part]
        except (KeyError, IndexError, TypeError):
            break
    return line


def _check_names(suite: Suite, tree: Any, source: str) -> None:
    """Every named task, algorithm and metric exists and every setting is valid, or all problems are reported."""
    problems: list[str] = []

    def check(what: str, index: int, action: Any) -> None:
        try:
            action()
        except InputError as error:
            first = str(error).split("\nA ")[0].split("\nKnown")[0]
            problems.append(f"{source}:{_line(tree, [what, index])}: {what}[{index}]: {first}")

    for i, task in enumerate(suite.tasks):
        check("tasks", i, lambda name=task.name: _known("task", name, registry.tasks()))
    for i, algorithm in enumerate(suite.algorithms):
        check("algorithms", i, lambda entry=algorithm: _check_algorithm(entry))
    for i, metric in enumerate(suite.metrics or ()):
        check("metrics", i, lambda name=metric: _known("metric", name, registry.metrics()))
    labels = {a.display for a in suite.algorithms}
    for what, named in (
        ("step_from", [a.step_from for a in suite.algorithms if a.step_from]),
        ("tune.options", list(suite.tune.options) if suite.tune else []),
        *((f"profiles.{name}.only", list(p.only or ())) for name, p in suite.profiles.items()),
    ):
        if unknown := [n for n in named if n not in labels]:
            problems.append(f"{source}: {what}: no method is labelled {', '.join(unknown)}")
    if lacking := [a.display for a in suite.algorithms if a.match_drift and not a.step_from]:
        problems.append(f"{source}: match_drift without step_from: {', '.join(lacking)}")
    if problems:
        raise SuiteError("\n".join(problems))


def _known(kind: str, name: str, rows: Any) -> None:
    if name not in rows:
        raise UnknownNameError(kind, name, rows)


def _check_algorithm(entry: AlgorithmEntry) -> None:
    if registry.is_elsewhere(entry.name):
        module = entry.name.partition(":")[0]
        if module.endswith(".py") or not all(part.isidentifier() for part in module.split(".")):
            raise InputError(f"{entry.name}: a suite names installed code, 'module:Class'; name a file by --algorithm")
        registry.load_method(entry.name)
    else:
        _known("algorithm", entry.name, registry.algorithms())
    if entry.chosen:  # settings live in the class: only then is it imported
        registry.load_method(entry.name).make_settings(entry.chosen)
