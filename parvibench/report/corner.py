"""The picture of a task's reference: marginals and pairs of its coordinates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from parvibench.core.reference import Reference

from .drawing import style

#: Coordinates drawn, evenly spaced where there are more.
COORDINATES = 6
_POINTS = 4000


def write_corner(reference: Reference, path: Path) -> Path:
    """Corner plot of the reference draws: histograms of single coordinates and of pairs.

    Args:
        reference: with draws (m, D).
        path: of the picture, .png or .svg; its folder is made.

    Returns:
        The path.
    """
    draws = reference.draws.numpy()
    chosen = np.unique(np.linspace(0, draws.shape[1] - 1, min(COORDINATES, draws.shape[1])).astype(int))
    table = pd.DataFrame(draws[:_POINTS, chosen], columns=[f"x{i + 1}" for i in chosen])
    # Heavy tails would leave the bulk a single bin.
    low, high = table.quantile(0.002), table.quantile(0.998)
    table = table[((table >= low) & (table <= high)).all(axis=1)]
    with style(path.stem):
        import matplotlib.pyplot as plt
        import seaborn as sns

        grid = sns.pairplot(table, corner=True, kind="hist", diag_kind="hist", height=1.6)
        path.parent.mkdir(parents=True, exist_ok=True)
        grid.figure.savefig(path, dpi=120)
        plt.close(grid.figure)
    return path
