"""``merge``, ``verify``, ``submit`` and ``accept``: stores made on several machines, or by somebody else."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE, DEFAULT_TIMEOUT_S, Execution

if TYPE_CHECKING:
    from parvibench.board.accepting import Accepted as Accepted
    from parvibench.board.accepting import Terms
    from parvibench.board.packing import Manifest as Manifest
    from parvibench.harness.verification import Verification as Verification
    from parvibench.reporting.presented import Results


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
    from parvibench.harness.store import merging
    from parvibench.harness.store.store import Store
    from parvibench.reporting.presented import Results

    into = Store(Path(out))
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
    keep: bool = True,
) -> Verification:
    """Run parts of a store's latest run again, compare, and write ``verification.json`` there.

    Nothing in the store is run as code: plug-ins are not verified, nor are seconds.

    Args:
        store: folder.
        replicates: about how many to run again.
        seed: of the choice; by default unpredictable.
        workers: number of processes; 0 runs in this one. By default one per CPU.
        timeout: wall-clock limit of a chunk of replicates, s.
        keep: write the outcome into the store; otherwise ``keep_verification`` does.

    Raises:
        StoreError: no run, or damaged files.
    """
    from parvibench.harness import verification
    from parvibench.harness.store.store import Store

    found = verification.verify(Store(Path(store)), replicates, Execution(workers=workers, timeout=timeout), seed)
    if keep:
        verification.keep(found, Path(store))
    return found


def keep_verification(found: Verification, store: str | Path) -> Path:
    """Write the outcome of ``verify`` into the store, for its page; ``DiskError`` where that is impossible."""
    from parvibench.harness import verification

    return verification.keep(found, Path(store))


def submit(
    store: str | Path = DEFAULT_STORE, to: str | Path | None = None, *, name: str, contact: str = "", note: str = ""
) -> tuple[Path, Manifest]:
    """Pack the latest run of a store, without samples, with the source of its plug-ins; return archive and manifest.

    Args:
        store: folder of a run of a shipped suite.
        to: file; by default ``<suite>-<name>.zip`` in the working directory.
        name: of the submission; its rows bear it.
        contact: an address for questions, which is published; or empty.
        note: what else readers should know.

    Raises:
        InputError: no name, a text that is too long, or a plug-in whose source is not the one that was run.
        StoreError: no run, or damaged files.
    """
    from parvibench.board.packing import pack
    from parvibench.harness.store.store import Store

    if not name.strip():
        raise InputError("--name: a submission needs a name, such as the method's")
    where = Store(Path(store))
    suite = str(where.run().suite.get("name", ""))
    word = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "submission"
    path = Path(to) if to is not None else Path(f"{suite}-{word}.zip")
    return path, pack(where, path, name=name, contact=contact, note=note)


def accept(
    archive: str | Path,
    reports: str | Path = "reports",
    *,
    replicates: int = 60,
    run_plugins: bool = False,
    workers: int | None = None,
    timeout: float = DEFAULT_TIMEOUT_S,
) -> Accepted:
    """Verify a submission by reruns, add it to the board of its suite, and write the board's page.

    Args:
        archive: as ``submit`` makes it; untrusted.
        reports: folder with a published report per suite.
        replicates: about how many to run again.
        run_plugins: run its plug-ins, too, in a sandbox without network.
        workers: number of processes; 0 runs in this one. By default one per CPU.
        timeout: wall-clock limit of a chunk of replicates, s.

    Raises:
        InputError: no archive of results, no board of its suite, or rows that break the board's rules.
        RefusedError: cells that differ from reruns here.
    """
    from parvibench.board import accepting
    from parvibench.board.packing import opened

    with opened(Path(archive)) as found:
        suite = found.manifest.suite
    board, profile = _board(Path(reports), suite)
    terms = _terms(suite, profile)
    execution = Execution(workers=workers, timeout=timeout)
    accepted = accepting.accept(
        Path(archive), board, terms, profile, execution, replicates=replicates, run_plugins=run_plugins
    )
    write_board(board)
    return accepted


def write_board(board: str | Path) -> Path:
    """Write the page of a board from its own results and the accepted submissions; its path.

    Raises:
        InputError: not the folder of a published report.
    """
    from parvibench.board.accepting import assemble
    from parvibench.reporting.page.report_files import write_report
    from parvibench.reporting.presented import Results

    with tempfile.TemporaryDirectory() as folder:
        results = Results.load(assemble(Path(board), Path(folder) / Path(board).resolve().name))
        return write_report(results, Path(board), results.board, compact=True)


def commit(accepted: Accepted, reports: str | Path) -> str:
    """Commit the changed board on a new branch of the repository around ``reports``; the branch.

    Raises:
        InputError: no git repository there, or git refuses.
    """
    branch = f"submission-{accepted.manifest.id}"
    message = f"Board {accepted.manifest.suite}: add {accepted.manifest.name}"
    for words in (["switch", "-c", branch], ["add", "."], ["commit", "-q", "-m", message]):
        done = subprocess.run(["git", "-C", str(reports), *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise InputError(f"git {words[0]}: {(done.stderr or done.stdout).strip()[:300]}")
    return branch


def _board(reports: Path, suite: str) -> tuple[Path, str | None]:
    """The folder and the profile of a suite's published report."""
    found = {}
    for file in sorted(reports.glob("*/summary.json")):
        summary = json.loads(file.read_text(encoding="utf-8"))
        if (file.parent / "results.zip").is_file():
            found[str(summary.get("suite", ""))] = file.parent, summary.get("profile") or None
    if suite not in found:
        raise InputError(f"{reports}: no board of suite {suite[:80]!r}; there are {', '.join(found) or 'none'}")
    return found[suite]


def _terms(suite: str, profile: str | None) -> dict[str, set[Terms]]:
    from parvibench.board.accepting import Terms as Shared

    from .plan import Plan

    found: dict[str, set[Terms]] = {}
    for cell in Plan.of(suite, (), (), None, Execution(profile=profile)).cells(tuned=False):
        found.setdefault(cell.task, set()).add(Shared.of(cell.spec))
    return found
