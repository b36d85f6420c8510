"""Suite files: read, validated, with every problem reported by file, line and key path.

A suite is data. It names tasks and algorithms that are installed; a plug-in in a file next to it is loaded only where the
caller allows it (``plugins``), and no other code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from parvibench.core import registry
from parvibench.core.budget import Budget
from parvibench.core.errors import InputError, SuiteError, UnknownNameError, known_keys, problem_text
from parvibench.core.result import StartKind
from parvibench.suites import shipped

from .entries import (
    AlgorithmEntry,
    BurnIn,
    Entry,
    Patterns,
    Profile,
    Row,
    Strict,
    TaskEntry,
    Thinning,
    Tuned,
    TuneSpec,
    as_entry,
    as_tuple,
)
from .plugins import Allowed, plugin_place
from .yaml_tree import line_of, plain, read_yaml

Entries = Annotated[tuple[Annotated[TaskEntry, BeforeValidator(as_entry)], ...], BeforeValidator(as_tuple)]
Methods = Annotated[tuple[Annotated[AlgorithmEntry, BeforeValidator(as_entry)], ...], BeforeValidator(as_tuple)]
Rows = Annotated[tuple[Row, ...], BeforeValidator(as_tuple)]


class Suite(Strict):
    """A suite file, validated: every task with every algorithm, or rows. Field by field as in the README."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    description: str = ""
    tasks: Entries = ()
    algorithms: Methods = ()
    rows: Rows = ()
    replicates: int = Field(10, gt=0, le=100_000)
    seed: int = Field(0, ge=0, lt=2**63)
    budget: Budget | None = None  # rows may have their own
    particles: int | None = Field(None, gt=0, le=1_000_000)
    samples: int | None = Field(None, gt=1, le=1_000_000)
    burn_in: BurnIn = 0.5
    thinning: Thinning = 1
    start: StartKind = "task"
    contexts: int | None = Field(None, gt=1, le=1_000_000)  # decisions of sequential tasks
    metrics: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    dtype: Literal["float32", "float64"] = "float32"
    compile: bool = False  # as with ``--compile``
    chunk: int | None = Field(None, gt=0, le=100_000)  # most replicates at a time, where times are those of one run
    match: Literal["effective-step"] | None = None
    tune: TuneSpec | None = None
    tuned: Tuned | None = None
    profiles: dict[str, Profile] = Field(default_factory=dict)
    departures: Patterns = ()  # of the rows from what they repeat, besides those of their tasks and presets
    #: pattern of published pointers -> why no row of ours can be compared with them
    incomparable: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _require_distinct(self.tasks, self.algorithms, self.rows)
        if self.rows and (self.tasks or self.algorithms):
            raise ValueError("rows replace tasks and algorithms: give one or the other")
        missing = [] if self.rows else [n for n in ("tasks", "algorithms", "budget") if not getattr(self, n)]
        if missing:
            raise ValueError(f"no {', no '.join(missing)}: a suite lists tasks, algorithms and a budget, or rows")
        return self

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Its algorithms, or its rows."""
        return self.rows or self.algorithms

    @property
    def pairs(self) -> list[tuple[TaskEntry, AlgorithmEntry | Row]]:
        """What is run: every task with every algorithm, tasks outermost; or the rows."""
        if self.rows:
            return [(TaskEntry(name=row.task, splits=row.replicates), row) for row in self.rows]
        return [(task, algorithm) for task in self.tasks for algorithm in self.algorithms]

    def with_rows(self, patterns: Sequence[str]) -> Suite:
        """The suite with the rows that fit one of these patterns; ``InputError`` for one that fits none."""
        for pattern in patterns:
            if not any(row.fits(pattern) for row in self.rows):
                known = ", ".join(row.title for row in self.rows[:20]) or f"none: {self.name} has no rows"
                raise InputError(f"row {pattern}: no row of the suite fits; there are {known}")
        return self.model_copy(update={"rows": tuple(r for r in self.rows if any(r.fits(p) for p in patterns))})

    @property
    def default_profile(self) -> str | None:
        """The profile that is meant where none is named: the first; None of a suite without any."""
        return next(iter(self.profiles), None)

    def with_profile(self, name: str | None) -> Suite:
        """The suite under a profile, by default ``default_profile``; ``InputError`` without such a profile."""
        name = name or self.default_profile
        if name is None:
            return self
        if name not in self.profiles:
            raise UnknownNameError(f"profile of suite {self.name!r}", name, self.profiles)
        profile = self.profiles[name]
        not_overrides = ("only", "without", "tasks", "rows", "hours")
        overrides = {k: v for k, v in profile if v is not None and k not in not_overrides}
        kept = {a.display for a in self.algorithms if profile.only is None or a.display in profile.only}
        kept -= set(profile.without or ())
        overrides["algorithms"] = tuple(a for a in self.algorithms if a.display in kept)
        overrides["tasks"] = tuple(t for t in self.tasks if profile.tasks is None or t.name in profile.tasks)
        chosen = self if profile.rows is None else self.with_rows(profile.rows)
        return chosen.model_copy(update={**overrides, "profiles": {}})

    def resolved(self) -> dict[str, Any]:
        """As plain data, for provenance."""
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=False)


def _require_distinct(tasks: Entries, algorithms: Methods, rows: Rows) -> None:
    names = {"task": [t.name for t in tasks], "algorithm label": [a.display for a in algorithms]}
    for kind, given in {**names, "row": [r.title for r in rows]}.items():
        if repeated := sorted({n for n in given if given.count(n) > 1}):
            raise ValueError(f"{kind} given twice: {', '.join(repeated)} (tell them apart by 'label')")


def load_suite(name: str, allowed: Allowed = ()) -> Suite:
    """A shipped suite by name, or a suite file by path (ending in .yaml or .yml) with the file plug-ins ``allowed``.

    ``UnknownNameError`` for another name, ``SuiteError`` with line and key path of every problem for a malformed file.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise SuiteError(f"{name}: no such file")
        return parse_suite(path.read_bytes(), str(path), allowed)
    known = shipped()
    if name not in known:
        raise UnknownNameError("suite", name, known, "A suite of your own is named by its path, ending in .yaml.")
    return parse_suite(known[name].read_bytes(), f"{name}.yaml")


def parse_suite(content: bytes, source: str, allowed: Allowed = ()) -> Suite:
    """Validate the bytes of a suite file, ``source``; ``SuiteError`` with one line per problem."""
    tree = read_yaml(content, source)
    try:
        suite = Suite.model_validate(plain(tree, source))
    except ValidationError as error:
        problems = dict.fromkeys(_problem(tree, source, e) for e in error.errors())
        raise SuiteError("\n".join(problems)) from None
    suite = _with_plugins(suite, tree, source, allowed)
    _check_names(suite, tree, source)
    return _labelled(suite, source)


def stored_suite(plain: Mapping[str, Any]) -> Suite:
    """The suite in a run record; keys of earlier versions that are not part of a cell are dropped."""
    values = dict(plain)
    for part in ("algorithms", "rows"):
        values[part] = [{k: v for k, v in entry.items() if k != "match_drift"} for entry in plain.get(part, ())]
    if tune := plain.get("tune"):
        values["tune"] = {k: v for k, v in tune.items() if k not in ("choices", "finalists", "share")}
    return Suite.model_validate(values)


def _with_plugins(suite: Suite, tree: Any, source: str, allowed: Allowed) -> Suite:
    """The suite with the places of its file plug-ins as seen from here; nothing of a refused suite is loaded."""
    problems: list[str] = []

    def placed(what: str, keys: Sequence[str]) -> dict[str, Any]:
        entries = []
        for i, entry in enumerate(getattr(suite, what)):
            names = {key: getattr(entry, key) for key in keys}
            try:
                names = {key: plugin_place(name, Path(source).parent, allowed) for key, name in names.items()}
            except InputError as error:
                problems.append(f"{source}:{line_of(tree, [what, i])}: {what}[{i}]: {error}")
            entries.append(entry.model_copy(update=names))
        return {what: tuple(entries)}

    found = placed("tasks", ["name"]) | placed("algorithms", ["name"]) | placed("rows", ["task", "algorithm"])
    if problems:
        raise SuiteError("\n".join(problems))
    return suite.model_copy(update=found)


def _labelled(suite: Suite, source: str) -> Suite:
    """The suite with tasks and algorithms from places under their own names, where it gives no label."""
    algorithms = tuple(a.model_copy(update={"label": _label(a)}) for a in suite.algorithms)
    rows = tuple(r.model_copy(update={"label": _label(r), "task": _task_name(r.task)}) for r in suite.rows)
    tasks = tuple(t.model_copy(update={"name": _task_name(t.name)}) for t in suite.tasks)
    try:
        _require_distinct(tasks, algorithms, rows)
    except ValueError as error:
        raise SuiteError(f"{source}: {error}") from None
    return suite.model_copy(update={"tasks": tasks, "algorithms": algorithms, "rows": rows})


def _task_name(name: str) -> str:
    """Its own; posteriors of posteriordb, whose files may not be here, stay places until they are run."""
    later = name.startswith(registry.POSTERIORDB)
    return registry.load_task(name).name if registry.is_place(name) and not later else name


def _label(entry: AlgorithmEntry | Row) -> str:
    """The label that is given here, else, of an algorithm from a place, its own name where it can be loaded."""
    if entry.label or not registry.is_elsewhere(entry.name):
        return entry.label
    try:
        return registry.load_method(entry.name).name
    except InputError:
        return entry.name


def _problem(tree: Any, source: str, error: Any) -> str:
    """One line for one pydantic error: file:line: key path: what is wrong."""
    loc = [p for p in error["loc"] if not (isinstance(p, str) and p.startswith("function-"))]
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in loc).lstrip(".")
    known = known_keys(Suite, loc[:-1]) if error["type"] == "extra_forbidden" else None
    return f"{source}:{line_of(tree, loc)}: {problem_text(error, path or 'suite', known)}"


def _check_names(suite: Suite, tree: Any, source: str) -> None:
    """Every named task, algorithm and metric exists and every setting is valid, or all problems are reported."""
    problems = []

    def check(what: str, index: int, function: Callable[..., None], *given: Any) -> None:
        try:
            function(*given)
        except InputError as error:
            first = str(error).split("\nA ")[0].split("\nKnown")[0]
            problems.append(f"{source}:{line_of(tree, [what, index])}: {what}[{index}]: {first}")

    for i, task in enumerate(suite.tasks):
        check("tasks", i, _check_task, task.name)
    for i, algorithm in enumerate(suite.algorithms):
        check("algorithms", i, _check_algorithm, algorithm)
    titles = {f"{r.task}/{_label(r) or r.name}" for r in suite.rows}
    for i, row in enumerate(suite.rows):
        check("rows", i, _check_task, row.task)
        check("rows", i, _check_algorithm, row)
        check("rows", i, _check_varied, row, titles)
        for number in row.published:
            check("rows", i, _known, "metric", number.metric, registry.metrics())
    for i, metric in enumerate(suite.metrics or ()):
        check("metrics", i, _known, "metric", metric, registry.metrics())
    problems += [f"{source}: {line}" for line in _unknown_names(suite)]
    if problems:
        raise SuiteError("\n".join(problems))


def _unknown_names(suite: Suite) -> Iterator[str]:
    """A line for each section that names tasks or labels that the suite lacks."""
    tasks = {t.name for t in suite.tasks}
    for name, profile in suite.profiles.items():
        if unknown := [n for n in profile.tasks or () if n not in tasks]:
            yield f"profiles.{name}.tasks: no task is named {', '.join(unknown)}"
    labels = {_label(a) or a.name for a in suite.rows or suite.algorithms}
    named: dict[str, Iterable[str]] = {
        "step_from": [a.step_from for a in suite.entries if a.step_from],
        "tune.options": suite.tune.options if suite.tune else (),
    }
    for name, profile in suite.profiles.items():
        named |= {f"profiles.{name}.only": profile.only or (), f"profiles.{name}.without": profile.without or ()}
    for what, names in named.items():
        if unknown := [n for n in names if n not in labels]:
            yield f"{what}: no method is labelled {', '.join(unknown)}"


def _known(kind: str, name: str, rows: Any) -> None:
    if name not in rows:
        raise UnknownNameError(kind, name, rows)


def _check_varied(row: Row, titles: Collection[str]) -> None:
    if row.varies not in ("", *titles):
        raise InputError(f"{row.title} varies {row.varies}, which is no row")


def _check_task(name: str) -> None:
    if not registry.is_place(name):
        _known("task", name, registry.tasks())
    _task_name(name)


def _check_algorithm(entry: AlgorithmEntry | Row) -> None:
    if registry.is_elsewhere(entry.name):
        registry.load_method(entry.name)
    else:
        _known("algorithm", entry.name, registry.algorithms())
    if entry.chosen:  # settings live in the class: only then is it imported
        registry.load_method(entry.name).make_settings(entry.chosen)
