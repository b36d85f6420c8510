"""Records of cells made by hand: no sampler runs."""

from typing import Any

import pandas as pd

from parvibench.core.result import CellRecord, CellSpec
from parvibench.harness.store.store import CURVE_COLUMNS, RunCell

SPEC: dict[str, Any] = {
    "task": "banana", "task_version": 1, "algorithm": "svgd", "algorithm_version": 1, "settings": {"step_size": 0.05},
    "budget": {"iterations": 40}, "particles": 8, "samples": 8, "burn_in": 0.0, "thinning": 1, "replicates": (0, 1, 2), "seed": 0, "chunk": 3,
    "device": "cpu", "dtype": "float32",
}  # fmt: skip


def make_record(name: str = "", **changes: Any) -> CellRecord:
    """A finished cell of three replicates; ``name`` makes its key, ``changes`` are of spec or record."""
    of_spec = {k: changes.pop(k) for k in list(changes) if k in CellSpec.model_fields and k != "start"}
    values = {"label": of_spec.get("algorithm", "svgd"), "kind": "particles", "status": "ok"}
    return CellRecord.model_validate({**values, **changes, "spec": {**SPEC, "source": name, **of_spec}})


def asked(record: CellRecord) -> RunCell:
    """The cell as a run asks for it."""
    return RunCell(spec=record.spec, label=record.label)


def make_curve(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """A curve from its rows."""
    return pd.DataFrame(rows, columns=list(CURVE_COLUMNS))
