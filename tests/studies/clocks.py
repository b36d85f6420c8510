"""The clock is set back and forth between runs on one store: ``report``, ``merge`` and the mirror show the run made last.

``python tests/studies/clocks.py``
"""

import datetime as dt
import sqlite3
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from unittest import mock

from small_runs import run, suite_of

import parvibench as pb
from parvibench.harness.store.merging import merge
from parvibench.harness.store.store import Store
from parvibench.tracking.archive import rebuild
from parvibench.tracking.mirror import MirrorObserver

#: Seconds that the clock is off at the runs, one after the other: a year, a day, an hour, a second; back and forth.
OFF = (0, -86_400, 86_400, -1, 31_536_000, -31_536_000, 3_600, 0)
METHODS = ["sgld", "svgd", "ula", "mala", "hmc", "exact", "initial", "psgld"]
_NOW, _TIME = dt.datetime.now, time.time


def clock_off(seconds: float) -> ExitStack:
    """Let the clock of this process be off."""

    class Off(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return _NOW(tz) + dt.timedelta(seconds=seconds)

    stack = ExitStack()
    if seconds:
        stack.enter_context(mock.patch.object(dt, "datetime", Off))
        stack.enter_context(mock.patch.object(time, "time", side_effect=lambda: _TIME() + seconds))
    return stack


def study(folder: Path) -> tuple[int, list[str]]:
    """Tries, and where something else than the latest run was shown, a line each."""
    store, merged, found = Store(folder / "store"), Store(folder / "merged"), []
    database = f"sqlite:///{store.root}/mlflow.db"
    for seconds, method in zip(OFF, METHODS, strict=True):
        suite = suite_of(["multimodal"], [method], replicates=2, particles=5, budget={"iterations": 5}, metrics=["ksd"])
        with clock_off(seconds):
            mirror = MirrorObserver(store.root)
            made = run(suite, store.root, observers=[mirror])
            found += [told for told in [mirror.close(120)] if told]
            part = Store(folder / f"part-{method}")
            run(suite, part.root)
            merge([part], merged)
            again = run(suite, store.root)  # resumes: nothing is left to do
            shown = {
                "report": pb.load(store.root).run.id == again.run.id,
                "the run before": made.run.started < again.run.started or made.run.id < again.run.id,
                "merge": [c.label for c in pb.load(merged.root).cells] == [method],
                "mirror": rebuild(database, Store(folder / f"there-{method}")).id == made.run.id,
            }
        found += [f"{method}, clock off by {seconds} s: {what}" for what, right in shown.items() if not right]
    with closing(sqlite3.connect(store.root / "mlflow.db")) as base:
        (count,) = base.execute("SELECT COUNT(*) FROM tags WHERE key = 'parvibench.run_id'").fetchone()
    return len(OFF), found + ([] if count == len(OFF) else [f"{count} runs in the mirror"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        tries, problems = study(Path(name))
    print(f"{tries} settings of the clock, {len(problems)} problems", *problems, sep="\n")
    raise SystemExit(bool(problems))
