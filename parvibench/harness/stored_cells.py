"""The first part of a run: the cells and chunks whose results the store has already."""

from collections.abc import Iterable

from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.chunks import metrics_key, unpack_result
from parvibench.harness.run.judging import remeasure
from parvibench.harness.store.store import Store, is_final
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import Outcome
from parvibench.harness.workers.jobs import Ended


def stored_cells(cells: Iterable[Cell], store: Store, retry_failed: bool) -> dict[str, CellRecord]:
    """Stored cells that answer the request, by key, measured again where their metrics are out of date."""
    found: dict[str, CellRecord] = {}
    for cell in cells:
        record = store.usable(cell.key)
        if record is None or not is_final(record, retry_failed):
            continue
        if record.status is Status.OK and record.metrics_key != metrics_key(cell):
            samples = store.samples(cell.key)
            # An anchor's samples may be rows of the reference, so it is drawn again.
            if samples is None or not record.values or record.kind == "anchor":
                continue
            record, curve = remeasure(cell, record, store.curve(cell.key), samples)
            store.write_cell(record, curve, samples, store.trajectories(cell.key))
        found[cell.key] = record
    return found


def stored_chunks(cell: Cell, store: Store) -> dict[int, Ended]:
    """The chunks of a cell that an interrupted run has finished, by number."""
    saved = {i: store.finished_chunk(cell.key, i).load() for i in range(len(cell.chunks))}
    found = {i: unpack_result(cell, cell.chunks[i], content) for i, content in saved.items() if content}
    return {i: Outcome(result) for i, result in found.items() if result is not None}
