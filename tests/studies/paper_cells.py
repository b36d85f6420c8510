"""Results of a paper's suite made by hand, for the tests of the papers' audit."""

from parvibench.core.result import CellRecord, Status
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite, load_suite

BOSTON = "bnn-boston-sifg"
SVGD_RMSE, SVGD_NLL = (f"sifg/table-1/Boston/SVGD/{m}" for m in ("RMSE", "NLL"))


def ran(cell: Cell, values: dict[str, list[float]], **changes: object) -> CellRecord:
    """A result of a cell; ``changes`` are of its specification."""
    n = len(next(iter(values.values())))
    spec = cell.spec.model_copy(update={"replicates": tuple(range(n)), "chunk": 1, "seed": 7, **changes})
    return CellRecord(spec=spec, label=cell.label, kind="particles", status=Status.OK, iterations=100, values=values)


def of_table_1(*patterns: str) -> tuple[Suite, list[Cell]]:
    """Rows of the table of SIFG's networks, and their cells."""
    suite = load_suite("sifg-table-1").with_rows(patterns)
    return suite, expand(suite)
