"""Validity of a comparison: equal conditions, tuning, convergence, cost."""

from collections.abc import Collection, Mapping

from parvibench.reporting.formatting import join, named

#: Most methods that a sentence names.
_NAMED = 6
#: Where methods start that do not start at the task's initial points.
STARTS = {
    "own": "own initial points",
    "prior": "draws from the prior", "warm": "one reference draw, scattered by a tenth of its spread",
    "pathfinder": "draws of a Pathfinder fit, its cost counted", "laplace": "draws of a Laplace fit, its cost counted",
}  # fmt: skip
_BUDGETS = {
    "iterations": "iterations", "score_evaluations": "score evaluations per replicate",
    "scores_per_particle": "score evaluations per particle", "seconds": "seconds",
}  # fmt: skip
_TUNED_BY = {
    "regression": "tuned on a held-out fifth of the training rows", "sequential": "tuned on separate decisions",
}  # fmt: skip
_PASSES = (
    " A score evaluation is one pass over the data at one point; a mini-batch counts as its share of the rows: on tasks scored by "
    "mini-batches the budget is {ends} passes per replicate."
)
#: Only what a test says is called converged.
_STATES = {
    "converged": "converged (R-hat and ESS)",
    "flat": "flat (the metric no longer falls; no test of convergence applies)",
}


def same(what: str, except_for: Collection[str]) -> str:
    """Whether the methods of every task share a value; ``except_for`` those that do not."""
    if not except_for:
        return f"All methods of a task had the same {what}."
    return f"The methods of a task had the same {what}, except {named(except_for, _NAMED)}."


def starts(others: Mapping[str, Collection[str]]) -> str:
    """Where the methods started; ``others``: key of ``STARTS`` -> methods."""
    said = [f"{named(labels, _NAMED)} ({STARTS[kind]})" for kind, labels in others.items() if labels]
    if said:
        return f"The methods of a task started at its initial points, except {join(said)}."
    return "All methods started at the task's initial points (which differ between numbers of chains)."


def protocol(
    budget: Mapping[str, float],
    numbers: Mapping[str, int | None],
    passes: Collection[float] = (),
    *,
    others: bool = False,
) -> str:
    """Budget, points and replicates of all methods but ``others``; ``passes``: budgets in score evaluations of tasks scored by mini-batches."""
    parts = [f"{value:,g} {_BUDGETS.get(key, key)}" for key, value in budget.items()]
    parts += [f"{n:,} {what}" for what, n in numbers.items() if n]
    ends = " to ".join(dict.fromkeys(f"{end:,.0f}" for end in (min(passes), max(passes)))) if passes else ""
    more = " (rows marked + have more)" if others else ""
    return f"Budget of each method{more}: {join(parts)}.{_PASSES.format(ends=ends) if ends else ''}" if budget else ""


def converged(judged: int, counts: Mapping[str, int], no_better: int) -> str:
    """How many results are in which state."""
    words = ", ".join(f"{counts[state]} {_STATES.get(state, state)}" for state in sorted(counts))
    verb = "is" if no_better == 1 else "are"
    worse = f" {no_better} {verb} no better than the initial distribution." if no_better else ""
    return f"Of {judged} results: {words}.{worse}" if judged else ""


def cost(score_evaluations: float, hours: tuple[float, float] | None, tuning: float) -> str:
    """Score evaluations, hours of steady compute and of the rest (None where they cannot be added up), and tuning."""
    parts = [f"{score_evaluations:,.0f} score evaluations"]
    if hours is not None:
        parts += [
            f"{hours[0]:.2g} hours of steady-state compute on one process",
            f"{hours[1]:.2g} hours of metrics and warm-up",
        ]
    parts += [f"{tuning:,.0f} score evaluations of tuning"] * bool(tuning)
    return f"{'; '.join(parts)}."


def tuning(origins: Mapping[str, int], tags: Collection[Collection[str]], cost: float, at_edge: int) -> str:
    """Where step sizes come from; ``tags`` of the tasks of tuned ones, ``cost`` of tuning in score evaluations, best values at the edge of the grid."""
    if not origins:
        return "No method has a step size."
    counts = ", ".join(f"{n} {origin}" for origin, n in origins.items())
    ways = (next((way for tag, way in _TUNED_BY.items() if tag in of), "tuned against the reference") for of in tags)
    spent = [f"tuning cost: {cost:,.0f} score evaluations in total"] * bool(cost)
    edge = f" Best values at the edge of the grid (marked |): {at_edge}." if at_edge else ""
    return f"Step sizes: {'; '.join([counts, *dict.fromkeys(ways), *spent])}.{edge}"


def untuned(n: int, of: int) -> str:
    """That step sizes were not tuned; empty where all were."""
    which = "No step size was tuned" if n == of else f"{n} of {of} step sizes were not tuned"
    return f"{which}: a method may rank low here because its step size does not suit the target." if n else ""
