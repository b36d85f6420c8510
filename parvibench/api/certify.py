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
from parvibench.data.draws.arrays import Choice
from parvibench.data.draws.sample_formats import FORMATS as FORMATS
from parvibench.data.samples import read_draws
from parvibench.harness.store.files import output_place
from parvibench.harness.suite.suite import Suite
from parvibench.harness.suite.tuned_values import of_tasks
from parvibench.metrics.floors import SIZES, silent
from parvibench.metrics.floors import Notify as Notify
from parvibench.metrics.own_floors import with_floors
from parvibench.reference.build import add_floors, build, build_from_draws, built_in, default_folder
from parvibench.reference.checks import verify
from parvibench.reference.gates import MIXING, Effort, Gate
from parvibench.reference.gates import Refused as Refused

from .evaluate import in_coordinates


class Built(NamedTuple):
    """A reference that was written."""

    task: str
    path: Path
    gates: Sequence[Gate] = ()  #: the tests
    read: str = ""  #: how files of draws were read

    @property
    def grade(self) -> str:
        """``certified``, ``standard`` or ``not certified``, see ``Reference.grade``."""
        return Reference(torch.empty(0), False, json.loads(self.path.read_text(encoding="utf-8"))).grade


def build_reference(
    task: str, folder: Path | None = None, *, files: Sequence[Path] = (), columns: Sequence[str] = (),
    variables: Sequence[str] = (), samples: int = 0, uncertified: bool = False, notify: Notify, **effort: Any,
) -> Built:  # fmt: skip
    """Make reference samples with noise floors and a certificate: from chains, or from files of draws.

    Without ``files`` and ``effort``, a task of posteriordb takes the draws that come with it, where there are any, and a
    built-in one its exact sampler. They are written into ``folder``, by default ``parvibench-references`` or, for a built-in
    task, the installed package. ``samples`` is the sample size whose floors are built now, by default the number of the
    task's particles; of a built-in task all are. ``effort`` are fields of ``Effort``, for chains; ``notify`` is called with
    the progress. ``uncertified`` writes chains that fail a test too, marked.

    Raises:
        InputError: a regression that is compared by its predictions; a sample size that never has floors.
        Refused: chains did not pass all tests; the message says what would help.
    """
    found = registry.load_task(task)
    if 0 < samples < min(SIZES):
        raise InputError(f"--samples {samples}: noise floors are of {min(SIZES)} samples or more")
    if "predictive" in found.provides:
        raise InputError(
            f"{found.name} is compared by its predictions, whose certified references come with the package; "
            "tests/studies/predictive_references.py of the repository builds them"
        )
    if built_in(found) and folder is None and (files or effort) and registry.has_reference(found.name):
        raise InputError(f"{found.name} has a reference in the package: name another folder with --folder")
    output_place(folder or (default_folder() if built_in(found) else OWN_REFERENCES), folder=True)
    given = read_draws(files, Choice(columns, variables)) if files else None
    if given is None and not effort and hasattr(found, "given_draws"):
        given = found.given_draws()
    if given is not None:
        draws = in_coordinates(given, found, "the draws")
        path, gates = build_from_draws(found, folder, torch.tensor(draws.values), notify, samples=samples)
        copies = json.loads(path.read_text(encoding="utf-8"))["run"].get("copies")
        return Built(found.name, path, gates, "; ".join(filter(None, [*draws.read, copies])))
    if built_in(found) and "exact" in found.provides and not effort:
        effort = {"method": "exact"}
    path, gates = build(found, folder, Effort(**effort), notify, uncertified=uncertified, samples=samples)
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
        conflict = f"; its draws disagree with its program{wrong[0]}" if wrong else ""
        say(f"{i}/{len(missing)} {task.name}: {built.grade}{conflict} ({time.perf_counter() - began:.0f} s)")
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
    """Simulate the noise floors that references lack: name and changed file (or None) of each task.

    By default of all built-in tasks with reference samples and an exact sampler, for all metrics, in the installed package.
    Of a user-built reference all sample sizes, for the metrics of the task's verdict.

    Raises:
        InputError: the draws behind the floors are not stored.
    """
    output_place(folder or default_folder(), folder=True)
    for name in tasks or [name for name in registry.tasks() if registry.has_reference(name)]:
        task = registry.load_task(name)
        if built_in(task):
            if tasks or ("exact" in task.provides and task.reference() is not None):
                yield name, add_floors(task, folder, metrics, notify)
            continue
        reference = task.reference()
        if reference is None or not reference.pool_sizes:
            raise InputError(
                f"{name}: its reference does not have the draws that floors are simulated from; "
                f"`parvibench reference build {name}` makes reference and floors again"
            )
        for n in reference.pool_sizes:
            with_floors(task, reference, n, notify)
        yield task.name, None
