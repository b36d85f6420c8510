"""Statistics and outcomes in words: the measured value, the expected one, and a likely cause."""

import math
import re

import numpy as np

from .evidence import Array, Shift
from .question import Bound, Expected, Fixed, Question, Share

#: Part of the contract -> how a sampler breaks it, and the remedy.
PROMISES = {
    "alone": "a replicate's samples depend on the other replicates: take norms, means and bandwidths per replicate",
    "distinct": "replicates that start at the same points have the same samples: draw from `streams`",
    "repeatable": "same seed, different samples: draw from `streams`, and remember nothing in the algorithm itself",
    "seeded": "another seed, same samples: draw from `streams`",
    "untouched": "a step changes the state that it was given: return new tensors",
    "shape": "the output's shape is not (replicates, n, dim)",
    "dtype": "the output's dtype is not the problem's: make tensors like `problem.init()`",
    "constant": "a constant added to the log density changes the samples: use differences of log densities",
    "metered": "scores are evaluated that are not charged: evaluate through `problem` alone",
    "scored": "neither scores nor densities are evaluated: where do the samples come from?",
}
#: Prefix of a statistic -> what it adds to the rest in words.
_PREFIXES = {
    "kept.": "after few steps, ",
    "far.": "with long steps from exact draws, ",
    "hard.": "with steps so long that moves fail, ",
    "early ": "early in the run, ",
    "soon.": "after 20 steps, ",
    "calibrated.": "of parameters in the posteriors of their data, ",
}
#: Name before the brackets -> the same in words; {0} and {1} stand for a coordinate and the next, from 1.
_NAMES = {
    "mean": "mean of coordinate {0}",
    "variance": "variance of coordinate {0}",
    "log_sd": "log sd of coordinate {0}",
    "corr": "correlation of coordinates {0} and {1}",
    "correlation": "correlation of coordinates {0} and {1}",
    "energy": "mean log density",
    "rank": "mean rank of exact draws in their chains, function {0}",
    "rank_spread": "spread of the ranks of exact draws in their chains, function {0}",
    "dependence": "correlation of the steps of different {0}",
    "flow": "flow against its reversal, pair {0} of functions",
    "centre": "mean of coordinate {0} over the path, from the exact one, in sd",
    "normaliser": "estimated normalising constant over the exact one, less 1,",
    "bias": "error of the mean of coordinate {0}, in sd",
    "excess": "relative error of the variance of coordinate {0}",
    "spread": "n times the squared error of the mean, over the variance",
    "score": "mean score in direction {0}",
    "stein": "Stein's identity {0}",
    "gradient": "score against the gradient of the log density",
    "again": "share of points whose density is the same when called again (otherwise it is no function of the point)",
    "score_evaluations": "score evaluations charged",
}
_FAULTS = {"diverged": "not finite", "ties": "equal to another point", "stuck": "never moved"}
_HINTS = {
    "dependence[chains]": "draw noise for every chain, of shape x.shape[1:]",
    "dependence[replicates]": "draw from `streams`, whose draws differ between replicates",
    "stuck": "do all chains step?",
    "ties": "are points copied?",
    "diverged": "shorten the step, or allow a share with --allow-diverged",
}


def statistic_in_words(name: str) -> str:
    """The statistic's name in words."""
    said, rest = "", name
    while prefix := next((p for p in _PREFIXES if rest.startswith(p)), None):
        said, rest = said + _PREFIXES[prefix], rest[len(prefix) :]
    found = re.fullmatch(r"([^\[\]]+)(?:\[(.*)\])?", rest)
    if found is None or found[1] not in _NAMES:
        return said + rest.replace("_", " ")
    index = found[2] or ""
    numbers = (str(int(index) + 1), str(int(index) + 2)) if index.isdigit() else (index, index)
    return said + _NAMES[found[1]].format(*numbers)


def sentence(question: Question, name: str, expected: Expected, fresh: Array, effect: Shift) -> str:
    """One test in words: the measured value and the expected one."""
    promise = name.removeprefix("contract.")
    if promise in PROMISES and promise != name:
        return PROMISES[promise]
    told, hint = statistic_in_words(name), f": {_HINTS[name]}" if name in _HINTS else ""
    if isinstance(expected, Share):
        fault = _FAULTS.get(name, told)
        shares = f"{100 * fresh.mean():.3g}% of the points are {fault}, allowed are {100 * expected.limit:.3g}%"
        return shares + hint
    if lost := int((~np.isfinite(fresh)).sum()):
        return f"{told}: {lost} of {len(fresh)} replicates are not finite"
    if isinstance(expected, Fixed):
        return f"{told}: {fresh[np.argmax(np.abs(fresh - expected.value))]:.7g}, should be {expected.value:.7g}"
    error = abs(effect.high - effect.low) / 2
    if isinstance(expected, Bound):
        found, centre, error = float(fresh.mean()), 0.0, expected.limit or error
    else:
        found, centre = (float(np.median(v)) for v in (fresh, expected.values))
    offset, factor = question.unit(name)
    found, centre, error = offset + factor * found, offset + factor * centre, abs(factor) * error
    return f"{told}: {_number(found, error)}, should be {_number(centre, error)} +- {error:.1g}{hint}"


def _number(value: float, error: float) -> str:
    """With one digit more than its error has."""
    if not math.isfinite(value) or not error > 0:
        return f"{value:.4g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f}" if digits < 7 and abs(value) < 1e6 else f"{value:.4g}"
