"""Titles, notes and alternative texts of figures, most of them templates; labels come shortened."""

from collections.abc import Iterable

MEANS = (
    "Mean of the middle half of all replicates of all tasks; bars: 95%, replicates resampled within tasks. 1: as good as "
    "exact draws."
)
PARETO = (
    "Interquartile mean over the floor [95%] at the end of the run against the geometric mean of the cost over tasks; lower "
    "and further left is better. Line at 1: as good as exact draws. Named: no method is better at this cost; grey: the others."
)
AVERAGE_RANKS = "Methods that are ranked on every task."
PROFILE = (
    "Solved by a replicate: its error is at most {factor} times the lowest final median (log likelihoods: within {nats} nats), or "
    "that of exact draws. Bands: 95%, over replicates."
)
CURVES = (
    "Lines: medians over replicates at up to seven checkpoints; bands: lower to upper quartile. Lines end where the "
    "median is no longer finite. Dashed and dotted: anchors."
)
CURVES_FLOOR = (
    f"{CURVES} Grey: the floor, the values of the same number of independent exact draws (5 to 95%, and median)."
)
SAMPLES = "{n} samples of {label} over the density of {task}"
OUTSIDE = " ({n} of {of} outside)"
SCATTER = "Samples of one replicate at the end of the run. Contours hold 50, 90 and 99% of the target's probability."
WITHOUT = " No points are stored of {names}."
SCATTER_CHAINS = f"{SCATTER} Lines connect the samples of single chains in order."
PATHS = "trajectories of {n} particles of {label} over the density of {task}"
PATHS_NOTE = (
    "Lines connect a particle's positions at the checkpoints; the dot is its last position. Particles of one replicate."
)
CORNER_TITLE = "{label} against the reference on its {n} worst coordinates"
CORNER = (
    "Worst by mean or spread: {names}. Grey: the reference; colour: samples of the leader, replicates pooled; at most "
    "{points} points of either. The diagonal shows densities."
)
CALIBRATION = "Below the line: intervals too narrow; above: too wide. Test rows of the first {splits} splits."


def listed(title: str, values: Iterable[tuple[str, str]], lead: str = ": ") -> str:
    """A title and the values of its lines."""
    return f"{title}{lead}{'; '.join(f'{label} {value}'.rstrip() for label, value in values)}"
