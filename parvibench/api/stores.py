"""``merge``, ``verify``, ``submit`` and ``accept``: stores made on several machines, or by other people."""

import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from parvibench.board import accepting, verification
from parvibench.board.accepting import Accepted as Accepted
from parvibench.board.packing import Manifest as Manifest
from parvibench.board.packing import pack, read, sources_of
from parvibench.board.terms import Terms
from parvibench.board.verification import Verification as Verification
from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE, DEFAULT_TIMEOUT_S, Execution
from parvibench.harness.store import merging
from parvibench.harness.store.files import output_place, write_atomically
from parvibench.harness.store.store import Store
from parvibench.reporting.page.report_files import write_report
from parvibench.reporting.presented import Results

from .plan import select


def merge(
    stores: Sequence[str | Path],
    out: str | Path = DEFAULT_STORE,
    *,
    samples: bool = True,
    warn: Callable[[str], None] = warnings.warn,
) -> Results:
    """Merge the latest runs of several stores, such as the parts of ``run(part=(I, K))``, into one run.

    Args:
        stores: folders, each with a run of the same suite.
        out: store of the merged run; cells that it already holds stay.
        samples: copy samples and trajectories, too; without them a store takes a tenth of the space and is enough for
            reports, merging and resuming.
        warn: called with a message for cells that occur twice, and if seconds cannot be compared.

    Raises:
        StoreError: a store without a run, runs of different suites, or a damaged file.
    """
    into = Store(output_place(out, folder=True))
    run, notes = merging.merge([Store(Path(s)) for s in stores], into, samples=samples)
    for note in notes:
        warn(note)
    return Results.load(into, run.id)


def verify(
    store: str | Path,
    replicates: int = 60,
    *,
    seed: int | None = None,
    workers: int | None = None,
    timeout: float = DEFAULT_TIMEOUT_S,
) -> Verification:
    """Run parts of a store's latest run again, and compare.

    Nothing in the store is run as code: plug-ins are not verified, nor are seconds and cells made on other hardware. About
    so many ``replicates`` are run again; by default their choice is unpredictable. ``workers`` and ``timeout``, s, are
    those of ``run``.

    Raises:
        StoreError: no run, or damaged files.
    """
    execution = Execution.of(workers=workers, timeout=timeout)
    return verification.verify(Store(Path(store)), replicates, execution, seed)


def submit(
    store: str | Path = DEFAULT_STORE, to: str | Path | None = None, *, name: str, contact: str = "", note: str = "",
    warn: Callable[[str], None] = warnings.warn,
) -> tuple[Path, Manifest]:  # fmt: skip
    """Pack the latest run of a store, without samples, with the source of its plug-ins; return archive and manifest.

    Args:
        store: folder of a run of a shipped suite.
        to: file; by default ``<suite>-<name>.zip`` in the working directory.
        name: of the submission; its rows bear it.
        contact: an address for questions, which is published; or empty.
        note: what else readers should know.
        warn: called with every rule of the board that a row breaks, so that ``accept`` will refuse it.

    Raises:
        InputError: no name, a text that is too long, or a plug-in whose source is not the one that was run.
        StoreError: no run, or damaged files.
    """
    if not name.strip():
        raise InputError("--name: a submission needs a name, such as the method's")
    where = Store(Path(store))
    run = where.run()
    suite = str(run.suite.get("name", ""))
    word = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "submission"
    path = output_place(to if to is not None else f"{suite}-{word}.zip")
    sources = sources_of([r for c in run.cells if (r := where.usable(c.key)) is not None])
    manifest = pack(where, path, run=run, sources=sources, name=name, contact=contact, note=note)
    boards = _boards(Path(str(files("parvibench.results"))))
    lines = [f"no board of suite {suite!r}; there are {', '.join(boards)}"]
    if suite in boards:
        _, profile, protocol = boards[suite]
        own = select(suite, (), (), Execution(profile=profile)).model_dump(exclude_none=True)
        other = {k: v for k, v in protocol.items() if v is not None and v != own.get(k)}
        terms = Terms(select(suite, (), (), Execution.of(profile=profile, **other)))
        lines = accepting.broken(run, sources, terms, profile)
    for line in lines[:10]:
        warn(f"accept will refuse this: {line}")
    return path, manifest


def accept(
    archive: str | Path,
    reports: str | Path = "reports",
    *,
    out: str | Path = DEFAULT_STORE / "accepted",
    container: str | Path | None = None,
    workers: int | None = None,
    timeout: float = DEFAULT_TIMEOUT_S,
) -> Accepted:
    """Check a submission, run its built-in methods again, add it to the board of its suite, and write the board's page.

    The ``archive`` is as ``submit`` makes it: untrusted, and nothing in it is run. ``reports`` has a published report per
    suite; ``out`` is the store of the reruns, which the same call resumes; ``container`` the archive of the maintainers' own
    run of its plug-ins. ``workers`` and ``timeout``, s, are those of ``run``.

    Raises:
        InputError: no archive of results, no board of its suite, rows that break the board's rules, or a page that would
            lose pictures.
        RefusedError: cells that differ from reruns here.
    """
    store = Store(output_place(out, folder=True))
    suite, known = read(Path(archive)).manifest.suite, _boards(Path(reports))
    if suite not in known:
        raise InputError(f"{reports}: no board of suite {suite[:80]!r}; there are {', '.join(known) or 'none'}")
    board = known[suite][0]
    output_place(board / "index.html")
    execution = Execution.of(workers=workers, timeout=timeout)
    other = None if container is None else Path(container)
    accepted = accepting.accept(Path(archive), board, store, execution, container=other)
    write_board(board, accepted)
    return accepted


def write_board(board: str | Path, new: Accepted | None = None) -> Path:
    """Write the page of a board from its own results and the accepted submissions, and ``new`` among them; its path.

    Files are replaced one by one, each as a whole; a repeat completes what was interrupted.

    Raises:
        InputError: not the folder of a published report, or the page would have fewer pictures than the one that is there.
    """
    folder = output_place(Path(board) / "index.html").parent
    with tempfile.TemporaryDirectory() as aside:
        store, marks, points = accepting.assemble(folder, Path(aside) / folder.resolve().name, new)
        results = replace(Results.load(store), marks=marks, points=points)
        page = Path(aside) / "page"
        try:
            write_report(results, page, compact=True)
        except Exception as error:
            if new is None:
                raise
            raise InputError(f"{new.manifest.name}: the page cannot be drawn with its rows ({error!r:.200})") from None
        before, after = (_pictures(p / "index.html") for p in (folder, page))
        if after < before:
            raise InputError(
                f"{folder}: the page has {before} pictures and would have {after}: results.zip lacks the "
                "samples that they show; publish the board again from its store"
            )
        for left in folder.rglob(".new-*"):  # of a process that was killed
            left.unlink()
        if new is not None:
            new.path.parent.mkdir(exist_ok=True)
            write_atomically(new.path, new.content)
        for file in sorted(p for p in page.rglob("*") if p.is_file()):
            place = folder / file.relative_to(page)
            place.parent.mkdir(exist_ok=True)
            write_atomically(place, file.read_bytes())
    return folder / "index.html"


def _pictures(page: Path) -> int:
    """Number of pictures of a page, those over seconds aside, which rows from other hardware end; 0 without a page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    untimed = re.sub(r'<figure[^>]*data-axis="seconds".*?</figure>', "", text, flags=re.S)
    return len(re.findall(r"<(?:svg|img)\b", untimed))


def _boards(reports: Path) -> dict[str, tuple[Path, str | None, dict[str, Any]]]:
    """Suite -> folder, profile and protocol of its published report."""
    found = {}
    for file in sorted(reports.glob("*/results.parquet")):
        facts = pd.read_parquet(file, columns=[]).attrs
        found[str(facts["suite"])] = file.parent, facts["profile"], facts["protocol"]
    return found
