"""Validity of a comparison: equal conditions, tuning, convergence, cost."""

from collections.abc import Collection, Mapping, Sequence

from parvibench.reporting.formatting import join, named

#: Most methods that a sentence names.
_NAMED = 6
_STARTS = {
    "prior": "draws from the prior", "warm": "one reference draw, scattered by a tenth of its spread",
    "pathfinder": "draws of a Pathfinder fit, its cost counted", "laplace": "draws of a Laplace fit, its cost counted",
}  # fmt: skip
_BUDGETS = {
    "iterations": "iterations",
    "score_evaluations": "score evaluations per replicate",
    "scores_per_particle": "score evaluations per particle",
    "seconds": "seconds",
}
_TUNED_BY = {
    "regression": "tuned on a held-out fifth of the training rows",
    "sequential": "tuned on separate decisions",
    "": "tuned against the reference",
}


def same(what: str, except_for: Collection[str]) -> str:
    """Whether the methods of every task share a value; ``except_for`` those that do not."""
    if not except_for:
        return f"All methods of a task had the same {what}."
    return f"The methods of a task had the same {what}, except {named(except_for, _NAMED)}."


def starts(own: Collection[str], others: Mapping[str, Collection[str]]) -> str:
    """Where the methods started; ``own``: methods with their own initial points, ``others``: start -> methods."""
    exceptions = {"own initial points": own, **{_STARTS[kind]: labels for kind, labels in others.items()}}
    said = [f"{named(labels, _NAMED)} ({where})" for where, labels in exceptions.items() if labels]
    if said:
        return f"The methods of a task started at its initial points, except {join(said)}."
    return "All methods started at the task's initial points (which differ between numbers of chains)."


def protocol(
    budget: Mapping[str, float], particles: int | None, samples: int | None, replicates: int | None, passes: Collection[float] = ()
) -> str:  # fmt: skip
    """Budget, points and replicates that a suite gives all methods; empty without a budget.

    ``passes``: the budgets in score evaluations of the tasks that are scored by mini-batches.
    """
    if not budget:
        return ""
    parts = [f"{value:,g} {_BUDGETS.get(key, key)}" for key, value in budget.items()]
    counts = {"particles or chains": particles, "samples judged": samples, "replicates": replicates}
    parts += [f"{n:,} {what}" for what, n in counts.items() if n]
    said = f"Budget of each method: {join(parts)}."
    if passes:
        ends = " to ".join(dict.fromkeys(f"{end:,.0f}" for end in (min(passes), max(passes))))
        said += f" A score evaluation is one pass over the data at one point; a mini-batch counts as its share of the rows: on tasks scored by mini-batches the budget is {ends} passes per replicate."
    return said


_STATES = {
    "converged": "converged (R-hat and ESS)",
    "flat": "flat (the metric no longer falls; no test of convergence applies)",
}


def converged(judged: int, counts: Mapping[str, int], no_better: int) -> str:
    """How many results are in which state; only what a test says is called converged."""
    if not judged:
        return ""
    words = ", ".join(f"{counts[state]} {_STATES.get(state, state)}" for state in sorted(counts))
    verb = "is" if no_better == 1 else "are"
    worse = f" {no_better} {verb} no better than the initial distribution." if no_better else ""
    return f"Of {judged} results: {words}.{worse}"


def cost(score_evaluations: float, hours: tuple[float, float] | None, tuning: float) -> str:
    """Score evaluations, hours of steady compute and of the rest (None where they cannot be added up), and tuning."""
    parts = [f"{score_evaluations:,.0f} score evaluations"]
    if hours is not None:
        compute, rest = hours
        parts.append(
            f"{compute:.2g} hours of steady-state compute on one process; {rest:.2g} hours of metrics and warm-up"
        )
    if tuning:
        parts.append(f"{tuning:,.0f} score evaluations of tuning")
    return "; ".join(parts) + "."


def tuned_by(tags: Collection[str]) -> str:
    """What step sizes were tuned by, on a task with these tags."""
    return _TUNED_BY[next((tag for tag in ("regression", "sequential") if tag in tags), "")]


def step_sizes(origins: Mapping[str, int], tuned: Sequence[str], cost: float) -> str:
    """Where step sizes come from; ``tuned`` of ``tuned_by``, ``cost`` of tuning in score evaluations."""
    counts = ", ".join(f"{n} {origin}" for origin, n in origins.items())
    return "; ".join([counts, *tuned, *[f"tuning cost: {cost:,.0f} score evaluations in total"] * bool(cost)])


def untuned(n: int, of: int) -> str:
    """That step sizes were not tuned; empty where all were."""
    if not n:
        return ""
    which = "No step size was tuned" if n == of else f"{n} of {of} step sizes were not tuned"
    return f"{which}: a method may rank low here because its step size does not suit the target."


def tuning(summary: str, at_edge: int) -> str:
    """The tuning, and the number of values at the edge of the grid; ``summary`` of ``step_sizes`` or empty."""
    if not summary:
        return "No method has a step size."
    edge = f" Best values at the edge of the grid (marked |): {at_edge}." if at_edge else ""
    return f"Step sizes: {summary}.{edge}"
