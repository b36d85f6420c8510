"""Which tasks, algorithms and metrics exist, without importing any of them.

The rows of the built-in ones are read from ``index.json``, which ``make index`` writes from the classes; listing
imports neither torch nor MLflow. Other packages register under the entry-point groups ``parvibench.tasks`` and
``parvibench.algorithms``; duplicates are refused, naming both owners.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .certified import home_of
from .errors import InputError, ParVIBenchError, UnknownNameError

if TYPE_CHECKING:
    from .algorithm import Algorithm, Method
    from .metric import Metric
    from .task import Task


@dataclass(frozen=True)
class Row:
    """A row of the index."""

    name: str  #: canonical name
    target: str  #: ``module:attribute``
    version: int = 1  #: raised on any change of results
    summary: str = ""  #: one line

    @property
    def built_in(self) -> bool:
        """Whether it ships with this package."""
        return self.target.startswith("parvibench.")


@dataclass(frozen=True)
class TaskRow(Row):
    """A task's row."""

    dim: int | None = None  #: D, or None for a task of another package
    tags: tuple[str, ...] = ()  #: sorted
    data: tuple[str, ...] = ()  #: data sets needed from disk
    reference: str = ""  #: what samples are judged by once the reference file of the task is there
    otherwise: str = "none"  #: what they are judged by without it

    @property
    def judged_by(self) -> str:
        """What samples of the task are judged by now."""
        return self.reference if has_reference(self.name) else self.otherwise


@dataclass(frozen=True)
class AlgorithmRow(Row):
    """An algorithm's row: kind, needs (sorted) and citation as in its class."""

    kind: str = ""
    needs: tuple[str, ...] = ()
    citation: str = ""
    library: str = ""  #: external library that it runs, or empty


@dataclass(frozen=True)
class MetricRow(Row):
    """A metric's row: the attributes of ``Metric``."""

    direction: str = "neutral"
    unit: str = ""
    need: str = ""
    when: str = "every"
    floor_ratio: bool = False

    @property
    def goal(self) -> str:
        """Which values are better, in words."""
        return f"{'neither' if self.direction == 'neutral' else self.direction} is better"


R = TypeVar("R", bound=Row)


def has_reference(name: str) -> bool:
    """Whether the package ships a reference of that task, or the user built one."""
    return home_of(name) is not None


@cache
def tasks() -> Mapping[str, TaskRow]:
    """All tasks by name, built-in ones first."""
    return _with_entry_points("parvibench.tasks", _indexed("tasks", TaskRow), TaskRow)


@cache
def algorithms() -> Mapping[str, AlgorithmRow]:
    """All algorithms by name, built-in ones first."""
    return _with_entry_points("parvibench.algorithms", _indexed("algorithms", AlgorithmRow), AlgorithmRow)


@cache
def metrics() -> Mapping[str, MetricRow]:
    """All metrics by name."""
    return _indexed("metrics", MetricRow)


def direction(metric: str) -> str:
    """Which values of a metric are better: ``lower`` (also of unknown ones), ``higher`` or ``neutral``."""
    row = metrics().get(metric)
    return "lower" if row is None else row.direction


def _indexed(section: str, row: type[R]) -> dict[str, R]:
    """The rows of a section of the index."""
    index = json.loads((files("parvibench.core") / "index.json").read_text(encoding="utf-8"))
    rows: dict[str, R] = {}
    for name, facts in index[section].items():
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
        rows[name] = row(name, **values)
    return rows


def described(section: str, name: str) -> dict[str, Any]:
    """The facts of a built-in task, algorithm or metric that ``show`` prints, in ``described.json``; empty for any other."""
    rows = json.loads((files("parvibench.core") / "described.json").read_text(encoding="utf-8"))[section]
    return rows.get(name, {})


def _with_entry_points(group: str, rows: dict[str, R], row: type[R]) -> dict[str, R]:
    owners = dict.fromkeys(rows, "parvibench")
    for point in entry_points(group=group):
        owner = point.dist.name if point.dist else "an unknown package"
        if point.name in rows:
            raise InputError(f"{group}: {point.name!r} is defined by both {owners[point.name]} and {owner}")
        owners[point.name] = owner
        rows[point.name] = row(point.name, point.value)
    return rows


_ENTRIES = "the entry-point group 'parvibench."
#: User-defined tasks known to this process: name -> task and its place.
_own: dict[str, tuple[Task, str]] = {}


def load_task(name: str) -> Task:
    """The task of that name, or of a place: ``module:attribute`` or ``file.py:attribute``.

    Tasks from places are known by their names, too, for the rest of the process. ``UnknownNameError`` with near names;
    ``InputError`` where nothing can be loaded from the place, or it is no task.
    """
    if is_place(name):
        return _from_place(name)
    if name not in tasks() and name in _own:
        return _own[name][0]
    own = "Give a task of your own as 'file.py:OBJECT' or 'module:OBJECT'; a task from another package "
    return load_object(_target("task", name, tasks(), f"{own}must be installed and listed under {_ENTRIES}tasks'."))


def is_place(name: str) -> bool:
    """Whether a task's name says where it is: ``file.py:OBJECT``, ``module:OBJECT``, ``model.stan:data.json``, .."""
    return name not in tasks() and (":" in name or name.endswith((".py", ".stan")))


def _from_place(place: str) -> Task:
    from .task import Task

    opener = next((o for kind, o in _OPENERS.items() if re.search(kind, place)), None)
    if opener is not None:
        found: Task = load_object(opener)(place)
        adopt(found)
        return found
    task = load_object(place, "task")
    file, _, attribute = place.rpartition(":")
    if inspect.isclass(task) and issubclass(task, Task):
        task = cast("Any", task)()
    if adapter := _ADAPTERS.get(type(task).__module__.partition(".")[0]):
        task = load_object(adapter)(task, name=attribute.replace("_", "-"))
    if not isinstance(task, Task):
        right = f"NAME = pb.task({attribute}, dim=...), or of a Pyro model NAME = pb.from_pyro({attribute}, data)"
        raise InputError(
            f"{place} is a {type(task).__name__}, not a task; write {right}, and give {place[: -len(attribute)]}NAME"
        )
    adopt(task, f"{Path(file).resolve()}:{attribute}" if file.endswith(".py") else place)
    return task


#: Places of posteriors of posteriordb begin so.
POSTERIORDB = "posteriordb:"
#: Places that are no Python object, by how they look -> function that makes the task.
_OPENERS = {
    f"^{POSTERIORDB}": "parvibench.targets.posteriordb:opened",
    r"\.stan(:|$)": "parvibench.targets.stan_models:opened",
}

#: Library of an object that is a model by itself -> function that makes the task.
_ADAPTERS = {"pymc": "parvibench.targets.pymc_models:from_pymc"}


def adopt(task: Task, place: str = "") -> None:
    """Register a user-defined task by its name for the rest of the process; errors as of ``require_own_name``."""
    require_own_name(task)
    if task.name not in tasks():
        _own[task.name] = task, place or place_of(task)


def place_of(task: Task) -> str:
    """``module:attribute`` or ``file.py:attribute`` for another process; empty of a main program's or notebook's."""
    known = _own.get(task.name)
    if known is not None and known[0] is task and known[1]:
        return known[1]
    if place := getattr(task, "place", ""):
        return str(place)
    return next(filter(None, (place_in(name, lambda value: value is task) for name in list(sys.modules))), "")


def place_in(module: str, fits: Callable[[Any], bool]) -> str:
    """Where another process finds the first attribute of a module that ``fits``, as ``place_of``; or empty."""
    content = dict(getattr(sys.modules.get(module), "__dict__", {}))  # others' modules may be any objects
    if module in ("__main__", "__mp_main__", "builtins") or content.get("__spec__") is None:
        return ""
    attribute = next((name for name, value in content.items() if fits(value)), "")
    place = content.get("__file__", "") if module.startswith(_PLUGIN) else module
    return f"{place}:{attribute}" if attribute else ""


def require_own_name(task: Task) -> None:
    """``InputError`` for a task object with the name of another one, whose reference and stored cells it would get."""
    if task.name in tasks() and load_task(task.name) is not task:
        owner = "a built-in task" if tasks()[task.name].built_in else "a task of another package"
        raise InputError(f"{task.name!r} is the name of {owner}, and this object is another: give it a name of its own")


def load_algorithm(name: str) -> Algorithm:
    """The algorithm of that name, or of a path, as ``load_method``; ``InputError`` for an anchor."""
    from .algorithm import Algorithm

    method = load_method(name)
    if not isinstance(method, Algorithm):
        raise InputError(f"{name} is an anchor: it takes no steps")
    return method


def load_method(name: str) -> Method:
    """The algorithm or anchor of that name or place; ``UnknownNameError`` with near names, else ``InputError``."""
    hint = f"An algorithm from another package must be installed and listed under {_ENTRIES}algorithms', or be named as 'module:Class'."
    place = name if is_elsewhere(name) else _target("algorithm", name, algorithms(), hint)
    return as_method(load_object(place, "sampler"), name)


def is_elsewhere(name: str) -> bool:
    """Whether an algorithm's name says where it is, as ``module:Class`` and ``file.py:Class`` do."""
    return ":" in name and name not in algorithms()


def as_method(found: Any, name: str = "") -> Method:
    """An algorithm or anchor, given itself or its class; ``InputError`` with a line for each thing that it lacks."""
    from .algorithm import Method, shadowed

    owner = found if isinstance(found, type) else type(found)
    if not issubclass(owner, Method):
        what = f"the class {owner.__name__}" if isinstance(found, type) else f"a {owner.__name__}"
        hint = "; wrap a function of (problem, x0, generator) by pb.sampler" if inspect.isfunction(found) else ""
        raise InputError(f"{name or found!r} is {what}, not a parvibench Algorithm{hint}")
    owner.require_complete()
    try:
        made = found() if isinstance(found, type) else found
    except TypeError as error:
        raise InputError(f"{name or owner.__name__}: the class must work without arguments: {error}") from error
    if hidden := list(shadowed(made)):
        raise InputError("\n".join(f"{owner.__name__}: {line}" for line in hidden))
    return cast("Method", made)


@cache
def load_metric(name: str) -> Metric:
    """The metric of that name; ``UnknownNameError`` with near names."""
    return load_object(_target("metric", name, metrics()))


def _target(kind: str, name: str, rows: Mapping[str, Row], hint: str = "") -> str:
    if name not in rows:
        raise UnknownNameError(kind, name, rows, hint)
    return rows[name].target


def load_object(target: str, kind: str = "model") -> Any:
    """Whatever is at ``module:attribute`` or ``file.py:attribute``; ``InputError`` where nothing is, naming those of the kind."""
    place, _, attribute = target.rpartition(":")
    if not place:
        raise InputError(f"{target}: name the object in it, too, as {target}:OBJECT")
    try:
        if not place.endswith(".py") and (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # as pytest and `python -m` find a package in the working folder
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except FileNotFoundError as error:
        raise InputError(f"cannot load {target!r}: {error}") from error
    except Exception as error:  # whatever the code of others raises
        raise InputError(_described(error, target)) from error
    if not hasattr(module, attribute):
        offered = [n for n, v in vars(module).items() if not n.startswith("_") and _is(kind, v, module.__name__)]
        names = ", ".join(offered[-8:]) or "none"
        raise InputError(f"cannot load {target!r}: there is no {attribute!r}; {kind}s there: {names}")
    return getattr(module, attribute)


def _is(kind: str, found: Any, module: str) -> bool:
    """Whether an object is of that kind, or a class of it that is defined in the module."""
    from .algorithm import Method
    from .task import Task

    base = Method if kind == "sampler" else Task
    simulates = kind == "model" and hasattr(found, "simulate")
    if isinstance(found, type):
        return (simulates or issubclass(found, base)) and found.__module__ == module
    adapted = kind != "sampler" and type(found).__module__.partition(".")[0] in _ADAPTERS
    return adapted or simulates or isinstance(found, base)


def _described(error: Exception, target: str) -> str:
    """What failed in the import of a place, and in which line of which file: the object is not to blame."""
    what = str(error) if isinstance(error, ParVIBenchError) else f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"importing {error.filename} fails in line {error.lineno}: {type(error).__name__}: {error.msg}"
    lines = [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]
    # Python's own frames have no file; what a plug-in calls is elsewhere, and the files next to it are its own.
    lines = [(file, line) for file, line in lines if file.is_file() and file.resolve() not in _IMPORTERS]
    beside = [at for at in lines if at[0].parent == lines[0][0].parent]
    if not beside:
        hint = "; a file is named with its ending, file.py:CLASS" if isinstance(error, ModuleNotFoundError) else ""
        return f"cannot load {target!r}: {what}{hint}"
    return f"importing {beside[-1][0]} fails in line {beside[-1][1]}: {what}"


#: Files through which every import of a place goes.
_IMPORTERS = (Path(__file__).resolve(), Path(importlib.__file__).resolve())


#: Names of the modules of file plug-ins begin so.
_PLUGIN = "parvibench_plugin_"


def _load_file(path: Path) -> Any:
    """Import a file plug-in under a name of its own, once; like a script's, its folder is looked through, last."""
    name = _PLUGIN + path.resolve().as_posix().replace("/", "_").removesuffix(".py")
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
