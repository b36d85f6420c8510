"""Tables from the curves of a run: methods at equal budgets, and how iterations grow with the dimension."""

import math

from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts import courses as curves
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.formatting import number

from .table import Column, Entry, Row, Table, estimate, method, numeric, sortable, whole


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


def growth_table(facts: Facts) -> Table | None:
    """Iterations to each level by dimension, and the exponent fitted to them; None with fewer than three dimensions."""
    found = curves.growth(facts)
    if not found:
        return None
    help = "iterations, median over replicates, interpolated between checkpoints"
    fit = "b of iterations = a D^b, least squares of logarithms over the dimensions that reach the level [95%]"
    columns = (
        Column("method", numeric=False), Column("to a KL of", "nats"), Column("exponent", fit),
        *[Column(f"D = {dim}", help) for dim in found[0].reached],
    )  # fmt: skip
    rows = []
    for g in found:
        reached = [Entry("never", sortable(n)) if math.isinf(n) else numeric(n) for n in g.reached.values()]
        slope = Entry("") if g.slope is None else estimate(*g.slope)
        rows.append(Row((method(g.label), numeric(g.level), slope, *reached), kind=g.kind))
    return Table("iterations to a divergence, by dimension", columns, tuple(rows))
