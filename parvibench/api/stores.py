"""``merge`` and ``verify``: stores made on several machines, or by somebody else."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parvibench.harness.execution import DEFAULT_STORE, DEFAULT_TIMEOUT_S, Execution

if TYPE_CHECKING:
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
