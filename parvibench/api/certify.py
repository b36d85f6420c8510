"""Reference samples of tasks: ``build_reference``, ``verify_references``, ``complete_floors``."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from parvibench.core import OWN_REFERENCES, registry
from parvibench.core.errors import InputError, ParVIBenchError
from parvibench.core.reference import Reference
from parvibench.core.task import Task
from parvibench.data.draws.arrays import Choice
from parvibench.data.draws.sample_formats import FORMATS as FORMATS
from parvibench.data.samples import read_draws
from parvibench.harness.store.files import output_place
from parvibench.harness.suite.suite import Suite
from parvibench.harness.suite.tuned_values import of_tasks
from parvibench.metrics.floors import silent
from parvibench.reference import build as shipped
from parvibench.reference import own
from parvibench.reference.checks import verify
from parvibench.reference.own_gates import MIXING, Effort, Gate
from parvibench.reference.own_gates import Notify as Notify
from parvibench.reference.own_gates import Refused as Refused

from .evaluate import in_coordinates


class Built(NamedTuple):
    """A reference that was written."""

    task: str
    path: Path
    gates: Sequence[Gate] = ()  #: the tests; of built-in tasks all have passed
    read: str = ""  #: how files of draws were read

    @property
    def grade(self) -> str:
        """``certified``, ``standard`` or ``not certified``, see ``Reference.grade``."""
        return Reference(torch.empty(0), False, json.loads(self.path.read_text(encoding="utf-8"))).grade


def build_reference(
    task: str, folder: Path | None = None, *, files: Sequence[Path] = (), columns: Sequence[str] = (),
    variables: Sequence[str] = (), uncertified: bool = False, notify: Notify, **effort: Any,
) -> Built:  # fmt: skip
    """Make reference samples with noise floors and a certificate: from chains, or from files of draws.

    Without ``files`` and ``effort``, a task of posteriordb takes the draws that come with it, where there are any.
    They are written into ``folder``, by default ``parvibench-references`` or, for a built-in task, the installed
    package. ``effort`` are fields of ``Effort``, for chains; ``notify`` is called with the progress. ``uncertified``
    writes chains that fail a test too, marked.

    Raises:
        Refused: chains did not pass all tests; the message says what would help.
    """
    found = registry.load_task(task)
    output_place(folder or (shipped.default_folder() if _built_in(found) else OWN_REFERENCES), folder=True)
    given = read_draws(files, Choice(columns, variables)) if files else None
    if given is None and not effort and hasattr(found, "given_draws"):
        given = found.given_draws()
    if given is not None:
        draws = in_coordinates(given, found, "the draws")
        path, gates = own.build_from_draws(found, folder, torch.tensor(draws.values), notify)
        copies = json.loads(path.read_text(encoding="utf-8"))["run"].get("copies")
        return Built(found.name, path, gates, "; ".join(filter(None, [*draws.read, copies])))
    if _built_in(found) and found.standardised:
        folder = folder or shipped.default_folder()
    elif _built_in(found) and not effort and not uncertified:
        return Built(found.name, shipped.build(found, folder, notify))
    path, gates = own.build_own(found, folder, Effort(**effort), notify, uncertified=uncertified)
    return Built(found.name, path, gates)


def references_of_draws(suite: Suite, say: Callable[[str], None]) -> Suite:
    """Build the references of posteriors that come with draws and have none yet; the suite without those that cannot be read.

    They are written into ``parvibench-references`` once. ``say`` is called with a line for each: its grade, and by which test
    its draws disagree with its program. ``InputError`` where no task is left.
    """
    own = [registry.load_task(t.name) for t in suite.tasks if t.name not in registry.tasks()]
    missing = [t for t in own if hasattr(t, "posterior") and t.posterior.draws and t.reference() is None]
    if missing:
        say(f"reference draws of posteriordb: {len(missing)} to test, with noise floors, once; some 20 s each")
    unread = set()
    for i, task in enumerate(missing, 1):
        began = time.perf_counter()
        try:
            built = build_reference(registry.place_of(task), notify=silent)
        except ParVIBenchError as error:
            unread.add(task.name)
            say(f"{task.name} is left out: its reference draws cannot be used: {str(error).splitlines()[0]}")
            continue
        wrong = [f": {g.name}: {g.found}" for g in built.gates if not g.passed and g.name not in MIXING]
        told = f"; its draws disagree with its program{wrong[0]}" if wrong else ""
        say(f"{i}/{len(missing)} {task.name}: {built.grade}{told} ({time.perf_counter() - began:.0f} s)")
    if unread and unread >= {t.name for t in suite.tasks}:
        raise InputError("no reference draws can be read, and there is no other task")
    return of_tasks(suite, {t.name for t in suite.tasks} - unread) if unread else suite


def verify_references(tasks: Sequence[str] = ()) -> Iterator[tuple[str, list[Any]]]:
    """Recompute the checks of the references of tasks, by default of all that have one: name and checks of each."""
    for name in tasks or filter(registry.has_reference, registry.tasks()):
        yield name, verify(registry.load_task(name))


def complete_floors(
    tasks: Sequence[str] = (), metrics: Sequence[str] | None = None, folder: Path | None = None, notify: Notify = silent
) -> Iterator[tuple[str, Path | None]]:
    """Simulate the noise floors that shipped references lack: name and changed file (or None) of each task.

    By default of all tasks with reference samples, for all metrics, in the installed package.

    Raises:
        InputError: a task that is not built in.
    """
    output_place(folder or shipped.default_folder(), folder=True)
    for name in tasks or [name for name in registry.tasks() if registry.has_reference(name)]:
        task = registry.load_task(name)
        if not _built_in(task):
            raise InputError(
                f"{name}: floors can be added to built-in references only, since others do not keep the draws; "
                f"`parvibench reference build {name}` makes reference and floors again"
            )
        reference = task.reference()
        if tasks or (reference is not None and "gates" not in reference.certificate):
            yield name, shipped.complete_floors(task, folder, metrics, notify)


def _built_in(task: Task) -> bool:
    row = registry.tasks().get(task.name)
    return row is not None and row.built_in
