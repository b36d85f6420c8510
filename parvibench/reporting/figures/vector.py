"""Matplotlib's SVG made small: invisible and empty parts are dropped, and paths go by differences.

A page holds a hundred figures, and Matplotlib writes three times what they need. What they share is on the page once.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from .figure import GROUND, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Placeholder for the colour of the page's text.
INK = "#010203"
#: Ids that Matplotlib is given for a method's marks and its entry in the legend: classes for the page's script.
LINE, ENTRY = "pv-line-", "pv-entry-"
_PLACES = ("x", "y", "width", "height")
_NUMBER = re.compile(r"-?\d+\.\d+|-?\d+")
_POLYLINE = re.compile(r"(?:[ML] -?[\d.]+ -?[\d.]+|z|\s)+")
_TICK = re.compile(r"[xy]tick_")
_NO_TURN = re.compile(r"rotate\(-?0 [^)]*\)")
#: Where the page's style sheet has the styles that the pictures share, and its body their marks.
STYLES, MARKS = "/*pictures*/", "<!--marks-->"
_STYLE = re.compile(r' style="([^"]*)"')
_MARK = re.compile(r'<defs><path id="([^"]*)"([^>]*)/></defs>')
#: HTML needs no quotes around a plain value, a third of what a mark takes.
_QUOTED = re.compile(r'(?<=[\w-])="([\w.#-]+)"(/?)')
_LABEL = re.compile(r'(<clipPath id="|url\(#|<use href="#)(?!ground-)([^")]*)')
_Element = ElementTree.Element


def svg(figure: Figure, attributes: str = "") -> str:
    """The SVG element alone: no header, no metadata, no ids shared between figures, places to a tenth of a point."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    root = ElementTree.fromstring(buffer.getvalue())
    content = "".join(map(_written, _visible(root))).replace(INK, "currentColor")
    return f'<svg viewBox="{root.get("viewBox")}"{attributes}>{content}</svg>'


def _visible(parent: _Element) -> Iterator[_Element]:
    """The children of an element without those that draw nothing; groups that say nothing are replaced by their own."""
    for child in parent:
        tag = child.tag.rpartition("}")[2]
        if tag in ("metadata", "style"):
            continue
        kept = list(_visible(child))
        said = _attributes(child)
        if _TICK.match(child.get("id", "")):  # ticks and grid lines end at the axes
            for part in kept:
                part.attrib.pop("clip-path", None)
        if tag == "g" and not said:
            yield from kept
            continue
        if tag in ("g", "defs") and not kept:
            continue
        style = said.get("style", "")
        if tag == "path" and "fill:none" in style and "stroke:" not in style:
            continue
        made = _Element(tag, said)
        made.text = child.text if tag == "text" else None
        made.extend(kept)
        yield made


def _attributes(element: _Element) -> dict[str, str]:
    said: dict[str, str] = {}
    for key, value in element.attrib.items():
        name = key.rpartition("}")[2]
        if name == "id":
            marked = re.fullmatch(rf"({LINE}|{ENTRY})(\d+)", value)
            said |= {"class": marked[1], "data-line": marked[2]} if marked else {} if "_" in value else {name: value}
        elif name == "style":
            parts = (p.replace(": ", ":") for p in re.split(r"; ?", value))
            said[name] = ";".join(p for p in parts if p and not p.startswith("font-family"))
        elif name == "d":
            said[name] = _short_path(value)
        elif name == "transform":
            said[name] = "" if _NO_TURN.fullmatch(value) else _short_numbers(value)
        else:
            said[name] = _short_numbers(value, 1) if name in _PLACES else value
    return {name: value for name, value in said.items() if value}


def _short_path(path: str) -> str:
    """A path of straight lines by differences, others with rounded numbers."""
    if not _POLYLINE.fullmatch(path):
        return " ".join(_short_numbers(path).split())
    made, at, start, before = [], (0, 0), (0, 0), ""
    for step, x, y in re.findall(r"([ML]) (\S+) (\S+)|z", path):
        if not step:
            made.append("z")
            at, before = start, "z"
            continue
        to = round(10 * float(x)), round(10 * float(y))
        if step == "L" and to == at:
            continue
        letter = "m" if step == "M" else "l" if before == "z" else ""
        made.append(f"{letter}{_rounded((to[0] - at[0]) / 10)} {_rounded((to[1] - at[1]) / 10)}")
        start, at, before = to if step == "M" else start, to, step
    return re.sub(r" ?([mlz])", r"\1", " ".join(made))


def _short_numbers(text: str, digits: int = 2) -> str:
    return _NUMBER.sub(lambda found: _rounded(round(float(found[0]), digits)), text)


def _rounded(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".").replace("-0.", "-.").removeprefix("0") or "0"


def _written(element: _Element) -> str:
    said = "".join(f' {key}="{escape(value)}"' for key, value in element.attrib.items())
    inside = escape(element.text or "") + "".join(map(_written, element))
    return f"<{element.tag}{said}>{inside}</{element.tag}>" if inside else f"<{element.tag}{said}/>"


class Pictures:
    """The SVG pictures of a page: styles become classes; marks and the ground of panels are drawn by reference."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {kind: {} for kind in ("p", "m", "c", "ground-")}

    def _name(self, kind: str, content: str) -> str:
        known = self._names[kind]
        return known.setdefault(content, f"{kind}{len(known)}")

    def element(self, picture: Picture) -> str:
        """The next picture, as it stands in the page."""
        ground = ""
        if picture.ground:
            known = picture.ground in self._names["ground-"]
            name = self._name("ground-", picture.ground)
            ground = f'<use href="#{name}"/>' if known else f'<g id="{name}">{picture.ground}</g>'
        image = picture.image.replace(GROUND, ground)
        styled = _STYLE.sub(lambda found: f' class="{self._name("p", found[1])}"', image)
        same = {found[1]: self._name("m", found[2]) for found in _MARK.finditer(styled)}
        marked = _MARK.sub("", styled)
        named = _LABEL.sub(lambda found: found[1] + (same.get(found[2]) or self._name("c", found[2])), marked)
        return _QUOTED.sub(lambda found: f"={found[1]}{' /' if found[2] else ''}", named)

    def styles(self) -> str:
        """The rules of the classes that the pictures use."""
        return "".join(f"\n.{name} {{{style}}}" for style, name in self._names["p"].items())

    def marks(self) -> str:
        """An element that shows nothing and defines the marks that the pictures use."""
        paths = "".join(f'<path id="{name}"{said}/>' for said, name in self._names["m"].items())
        return f'<svg width="0" height="0" class="marks" aria-hidden="true"><defs>{paths}</defs></svg>'
