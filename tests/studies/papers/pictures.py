"""Figures as pictures: our drawings of a suite's runs, kept as SVG in ``figures``, with the paper's claim and our verdict.

A drawing is made from a finished run by the package itself and copied here by ``--pictures``:

    parvibench run --suite srld-figure-2 --profile fast --out STORE
    python tests/studies/papers --pictures STORE
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from parvibench.api.report import load, write_figure
from parvibench.core.errors import InputError

FIGURES = "figures"


@dataclass(frozen=True)
class Said:
    """What stands below a picture."""

    title: str
    claim: str  #: the paper's
    verdict: str  #: ours
    panels: tuple[str, ...] = ()  #: whose they are, of a drawing of several


@dataclass(frozen=True)
class Picture:
    """A drawing on the page: one image, or several with their names."""

    said: Said
    images: tuple[tuple[str, Markup], ...]


#: Suite -> file of the drawing, without its ending -> what is said of it.
DRAWN: dict[str, dict[str, Said]] = {
    "sifg-figure-1": {
        "samples-gmm5-2d": Said(
            "Figure 1: particles over the density, settings of the text",
            "From one side SIFG finds all five modes, L2-GF and Ada-GWG do not.",
            "C01: supported with the paper's settings and with matched steps, not with each method at its own best step.",
            ("L2-GF", "Ada-GWG", "SIFG"),
        )
    },
    "sifg-figure-2": {
        "trajectories-gmm5-2d": Said(
            "Figure 2: trajectories of particles",
            "After convergence SIFG's particles keep moving, ten times as far as the others'.",
            "C02: not supported; at the text's settings all three move about equally far.",
            ("L2-GF", "Ada-GWG", "SIFG"),
        )
    },
    "srld-figure-1": {
        "samples-biased-start-gaussian": Said(
            "Figure 1: one chain with and without repulsion, over the density",
            "SRLD leaves the side on which the chain starts and covers the Gaussian; LD stays near its start.",
            "An illustration: the paper states no settings, ours are among the departures.",
            ("SRLD", "LD"),
        )
    },
    "srld-figure-2": {
        "curve-correlated-2d-mmd2_u_fixed-iteration": Said(
            "Figure 2: MMD over the length of the chain",
            "SRLD has a lower MMD than LD that moves equally far.",
            "C12: supported, also with tuned steps.",
        ),
        "autocorrelation-correlated-2d": Said(
            "Figure 2: autocorrelation", "SRLD's autocorrelation falls faster and below zero.", "C12: supported."
        ),
    },
}


def pictures(suite: str, folder: Path) -> list[Picture]:
    """Those drawings of a suite that are in a folder."""
    found = []
    for name, said in DRAWN.get(suite, {}).items():
        several = [(label, folder / f"{name}-{i}.svg") for i, label in enumerate(said.panels, 1)]
        images = [(label, _inline(file)) for label, file in several or [("", folder / f"{name}.svg")] if file.is_file()]
        found += [Picture(said, tuple(images))] if images else []
    return found


def _inline(file: Path) -> Markup:
    """A drawing as part of a page: its ids apart from those of others, its text in the page's colour."""
    svg = file.read_text(encoding="utf-8").replace("#000000", "currentColor")
    for each in sorted(set(re.findall(r'\bid="([^"]+)"', svg)), key=len, reverse=True):
        svg = re.sub(rf'(id="|#){re.escape(each)}(?=["\)])', rf"\1{file.stem}-{each}", svg)
    return Markup(svg)


def keep(stores: Sequence[Path], folder: Path) -> None:
    """Draw what the stores hold."""
    for results in map(load, stores):
        for name in (name for drawings in DRAWN.values() for name in drawings):
            try:
                files = write_figure(results, name, folder)
            except InputError:
                continue  # of another store
            for file in files:
                if file.suffix == ".csv":
                    file.unlink()
