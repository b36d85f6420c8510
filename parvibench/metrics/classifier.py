"""Classifier two-sample test."""

import numpy as np
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric

from .needs import against_reference
from .pairwise import thin

FOLDS = 5
CENTRES = 100
MOST_POINTS = 1000
#: In reference sds: the kernel is zero far below it, and squares stay finite.
FARTHEST = 1e6


@metric(
    "lower",
    "1",
    "reference",
    "cross-validated accuracy of a classifier between samples and reference; 0.5 for exact draws",
    when="last",
)
def c2st(samples: Tensor, context: Context) -> Tensor:
    """Accuracy of a classifier that separates samples from reference rows, on held-out points.

    Five-fold cross-validated accuracy (Lopez-Paz & Oquab 2017, arXiv:1610.06545) of ridge regression on 100
    Nystroem features of the Gaussian kernel ``exp(-||z - z'||^2 / (2 D))``, z in reference sds about the
    reference's mean. As many evenly spaced reference rows as samples enter, at most 1,000 of each; folds and
    features are fixed by a seed, and depend on the order of the samples. Unlike a nearest-neighbour
    classifier it detects samples that are too narrow in 20 dimensions and more.

    (R,), a share; lower is better, about 0.5 for exact draws and 1 for samples that are fully separable. About 0.3 s
    a replicate at n = 1000. Needs n >= 5 and as many reference rows.

    >>> c2st(torch.cat([x, x], 1), Context(banana, Reference(square.repeat(2, 1), True, {})))
    tensor([0.8000], dtype=torch.float64)
    """
    return against_reference(samples, context, _accuracy)


def _accuracy(x: Tensor, rows: Tensor) -> float:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline

    n, dim = min(len(x), len(rows), MOST_POINTS), x.shape[1]
    if n < FOLDS:
        raise NotApplicable(f"{FOLDS} folds need as many samples and reference rows, got {n}")
    mean, sd = rows.mean(0), rows.std(0)
    sides = [((thin(side, n) - mean) / sd).clamp(-FARTHEST, FARTHEST).numpy() for side in (x, rows)]
    features = Nystroem(gamma=0.5 / dim, n_components=min(CENTRES, n), random_state=0)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    labels = np.repeat([0, 1], n)
    scores = cross_val_score(make_pipeline(features, RidgeClassifier()), np.concatenate(sides), labels, cv=folds)
    return float(scores.mean())
