"""Corner plot of a task's reference draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from parvibench.core.reference import Reference

from .plots import theme

#: Coordinates drawn, evenly spaced where there are more.
COORDINATES = 6
_POINTS = 4000


def write_corner(reference: Reference, path: Path) -> Path:
    """Write histograms of single coordinates and of pairs of the reference draws to an image, .png or .svg; its path."""
    draws = reference.draws.numpy()
    chosen = np.unique(np.linspace(0, draws.shape[1] - 1, min(COORDINATES, draws.shape[1])).astype(int))
    table = central(pd.DataFrame(draws[:_POINTS, chosen], columns=[f"x{i + 1}" for i in chosen]))
    with theme(path.stem):
        import matplotlib.pyplot as plt
        import seaborn as sns

        grid = sns.pairplot(table, corner=True, kind="hist", diag_kind="hist", height=1.6)
        path.parent.mkdir(parents=True, exist_ok=True)
        grid.figure.savefig(path, dpi=120)
        plt.close(grid.figure)
    return path


def central(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with every number between its column's 0.2% and 99.8% quantiles: heavy tails would leave the bulk one bin."""
    numbers = table.select_dtypes("number")
    low, high = numbers.quantile(0.002), numbers.quantile(0.998)
    return table[((numbers >= low) & (numbers <= high)).all(axis=1)]
