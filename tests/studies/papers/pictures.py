"""Figures as pictures: our drawings of a suite's runs, stored as SVG in ``figures``, with the paper's claim and our verdict.

A drawing is made from a finished run by the package itself and copied here by ``--pictures``:

    parvibench run --suite srld-figure-2 --profile fast --out STORE
    python tests/studies/papers --pictures STORE
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from parvibench.api.report import load, loaded
from parvibench.reporting.page.report import drawings as drawings_of

from .paper_words import words

FIGURES = "figures"


@dataclass(frozen=True)
class Said:
    """Caption of a picture."""

    title: str
    claim: str  #: the paper's
    verdict: str  #: ours


@dataclass(frozen=True)
class Picture:
    """A drawing on the page: one image, or several with their names."""

    said: Said
    images: tuple[tuple[str, Markup], ...]


#: Suite -> file of the drawing, without its ending -> what is said of it.
DRAWN = {suite: {name: Said(**said) for name, said in of.items()} for suite, of in words("figures").items()}


def pictures(suite: str, folder: Path) -> list[Picture]:
    """Those drawings of a suite that are in a folder."""
    found = []
    for name, said in DRAWN.get(suite, {}).items():
        files = sorted(folder.glob(f"{name}-[0-9].svg")) or sorted(folder.glob(f"{name}.svg"))
        images = tuple(map(_inline, files))
        found += [Picture(said, images)] if images else []
    return found


def _inline(file: Path) -> tuple[str, Markup]:
    """A drawing as part of a page, with its title: ids apart from those of others, text in the page's colour."""
    svg = file.read_text(encoding="utf-8").replace("#000000", "currentColor")
    for each in sorted(set(re.findall(r'\bid="([^"]+)"', svg)), key=len, reverse=True):
        svg = re.sub(rf'(id="|#){re.escape(each)}(?=["\)])', rf"\1{file.stem}-{each}", svg)
    title = re.search(r"<title>([^<]*)</title>", svg)
    return title[1] if title else "", Markup(svg)


def keep(stores: Sequence[Path], folder: Path) -> None:
    """Draw what the stores hold; of a drawing of several each says whose it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for store in stores:
        drawings = {drawing.name: drawing for drawing in drawings_of(loaded(load(store)))}
        for drawing in (drawings[name] for named in DRAWN.values() for name in named if name in drawings):
            for i, picture in enumerate(drawing.pictures, 1):
                number = f"-{i}" if len(drawing.pictures) > 1 else ""
                svg = picture.content.decode()
                start = svg.index(">") + 1
                title = f"<title>{escape(picture.caption or picture.alt)}</title>"
                (folder / f"{drawing.name}{number}.svg").write_text(svg[:start] + title + svg[start:], encoding="utf-8")
