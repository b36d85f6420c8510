"""Titles, notes and alternative texts of figures; labels come shortened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

MEANS = (
    "Mean of the middle half of all replicates of all tasks; bars: 95%, replicates resampled within tasks. 1: as good as "
    "exact draws."
)
PARETO = (
    "Interquartile mean over the floor [95%] at the end of the run against the geometric mean of the cost over tasks; lower "
    "and further left is better. Grey: as good as exact draws. Dashed: no method is better at this cost."
)
CHANGES = "Changes of the mean over replicates (per cent: of the geometric mean), 95% intervals; blue: significant after Holm."


def as_in(title: str, figure: str) -> str:
    """A title with the published figure that it repeats."""
    return f"{title} (as in {figure})" if figure else title


def listed(title: str, values: Mapping[str, str] | Iterable[tuple[str, str]], lead: str = ": ") -> str:
    """A title and the values of its lines."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return f"{title}{lead}{'; '.join(f'{label} {value}'.rstrip() for label, value in pairs)}"


def of_methods(title: str, labels: Iterable[str], task: str) -> str:
    """Alternative text of a figure of a task with a line per method."""
    return f"{title} of {', '.join(labels)} on {task}"


def advice(others: int) -> str:
    """How to read the methods to use."""
    return (
        f"Large and named: the method to use, with its 95% interval; small: of the others the {others} with the lowest "
        "ratios, converged or not. Grey line: exact draws."
    )


def average_ranks(friedman: str) -> str:
    """How to read average ranks; with the outcome of Friedman's test."""
    return f"Methods that are ranked on every one of the tasks. {friedman}"


def profile(targets: Sequence[float]) -> str:
    """How to read a runtime profile."""
    return (
        f"Targets: sliced W2 of {', '.join(f'{t:g}' for t in targets)} floors, on every task in every replicate; times are as "
        "coarse as checkpoints. Higher and further left is better. Bands: 95%, over replicates."
    )


def curves(*, floor: bool) -> str:
    """How to read anytime curves."""
    known = " Grey: the floor, the values of as many independent exact draws (5 to 95%, and median)."
    return (
        "Lines: medians over replicates at up to seven checkpoints; bands: lower to upper quartile. Lines end where the "
        f"median is no longer finite. Dashed and dotted: anchors.{known if floor else ''}"
    )


def outside(n: int, of: int) -> str:
    """How many points lie outside a panel."""
    return f" ({n} of {of} outside)" if n else ""


def samples(n: int, label: str, task: str) -> str:
    """Samples over a density."""
    return f"{n} samples of {label} over the density of {task}"


def particle_paths(n: int, label: str, task: str) -> str:
    """Trajectories over a density."""
    return f"trajectories of {n} particles of {label} over the density of {task}"


def scatter(*, chains: bool) -> str:
    """How to read samples over contours."""
    note = "Samples of one replicate at the end of the run. Contours hold 50, 90 and 99% of the target's probability."
    return f"{note} Lines join the samples of single chains in their order." if chains else note


def worst_coordinates(label: str, n: int) -> str:
    """Title of a corner plot."""
    return f"{label} against the reference on its {n} worst coordinates"


def corner(coordinates: str, points: int) -> str:
    """How to read a corner plot."""
    return (
        f"Worst by mean or spread: {coordinates}. Grey: the reference; colour: samples of the leader, replicates pooled; at most "
        f"{points} points of either. The diagonal shows densities."
    )


def correlation_error(n: int, label: str, task: str, error: float) -> str:
    """Correlations of one method."""
    return f"{n} correlations of {label} against the reference's on {task}, root mean square error {error:.3f}"


def correlations(shown: int, dim: int) -> str:
    """How to read correlations."""
    note = "Horizontal: the reference's; vertical: the samples', replicates pooled. On the line they agree."
    return f"{note} {shown} of {dim} coordinates, evenly spaced." if shown < dim else note


def bands(methods: int) -> str:
    """How to read bands of paths."""
    return f"Grey band and black line: the reference; dashed: limits of the {methods} best methods' bands, replicates pooled."


def calibration(splits: int) -> str:
    """How to read the calibration of predictive intervals."""
    return f"Below the line: intervals too narrow; above: too wide. Test rows of the first {splits} splits."


def inside(n: int, of: int) -> str:
    """How many rows lie in their predictive interval."""
    return f"{n} of {of} rows of the first split lie in their interval."


def predictions(title: str, n: int, of: int, task: str) -> str:
    """The same beside a picture."""
    return f"{title} on {of} test rows of {task}; {n} lie in their 95% interval"


def changes(scale: str) -> str:
    """Title of the changes of a second run."""
    return f"second run against the first, change in {scale}"
