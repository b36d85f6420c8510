"""Tables from the curves of a run: methods at equal budgets."""

from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts import courses as curves
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.formatting import number

from .table import Column, Row, Table, estimate, method, numeric, whole


def equal_budget_tables(facts: Facts, task: str, metric: str) -> list[Table]:
    """A table for score evaluations and one for sequential steps."""
    known, tables = lb.floor(task, metric, facts.by_task[task][0].samples), []
    for axis, (level, rows) in curves.at_equal_budgets(facts, facts.by_task[task], metric).items():
        spent = axis.replace("_", " ")
        columns = (
            Column("method", numeric=False),
            Column("rank", "among the methods at this budget; 1 is best"),
            Column("× floor" if known else metric, "median over replicates [95% interval]"),
            Column(spent, "per replicate, at the checkpoint nearest to the level"),
            Column("iterations", "per replicate, at that checkpoint"),
        )
        body = []
        for r in rows:
            cost = whole(r.spent)._replace(note="end of its run" if r.ended else "")
            shown = method(r.cell.label), numeric(r.rank), estimate(*r.values), cost, whole(r.iterations)
            body.append(Row(shown, kind=r.cell.kind))
        tables.append(Table(f"At equal {spent}: {number(level)} per replicate", columns, tuple(body)))
    return tables
