"""Drawings as Matplotlib figures, and as PDF for papers."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from .figure import Drawing
from .plots import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def as_figure(drawing: Drawing, figures: Mapping[str, Figure]) -> Figure:
    """The Matplotlib figure of a drawing: the one it was drawn on, or its pictures side by side."""
    if drawing.name in figures:
        return figures[drawing.name]
    from matplotlib.figure import Figure as Empty

    columns = min(4, len(drawing.pictures))
    rows = math.ceil(len(drawing.pictures) / columns)
    with theme(drawing.name, ink="black"):
        made = Empty(figsize=(1.9 * columns, 2.1 * rows))
        for i, picture in enumerate(drawing.pictures):
            axes = made.add_subplot(rows, columns, i + 1)
            if drawing.paint is not None:
                drawing.paint(i, axes)
            else:
                with Image.open(io.BytesIO(picture.content)) as image:
                    axes.imshow(image.convert("RGBA"), interpolation="none")
                axes.set_axis_off()
            axes.set_title(picture.caption, fontsize=7)
        made.tight_layout(pad=0.3)
    return made


def write_pdf(figure: Figure, path: Path) -> None:
    """Write a figure as PDF with embedded fonts, without a date: the same figure gives the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"pdf.fonttype": 42}):
        figure.savefig(path, format="pdf", transparent=True, bbox_inches="tight", metadata={"CreationDate": None})
