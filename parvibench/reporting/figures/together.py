"""Many pictures on one page: what they share is there once."""

import re

from .figure import GROUND, Picture

#: Where the page's style sheet has the styles that the pictures share, and its body their marks.
STYLES, MARKS = "/*pictures*/", "<!--marks-->"
_STYLE = re.compile(r' style="([^"]*)"')
_MARK = re.compile(r'<defs><path id="([^"]*)"([^>]*)/></defs>')
#: HTML needs no quotes around a plain value, a third of what a mark takes.
_QUOTED = re.compile(r'(?<=[\w-])="([\w.#-]+)"(/?)')
_LABEL = re.compile(r'(<clipPath id="|url\(#|<use href="#)(?!ground-)([^")]*)')


class Pictures:
    """The SVG pictures of a page: styles become classes; marks and the ground of panels are drawn by reference."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}
        self._grounds: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        self._labels: dict[str, str] = {}

    def element(self, picture: Picture) -> str:
        """The next picture, as it stands in the page."""
        ground = ""
        if picture.ground:
            known = self._grounds.get(picture.ground)
            name = known or self._grounds.setdefault(picture.ground, f"ground-{len(self._grounds)}")
            ground = f'<use href="#{name}"/>' if known else f'<g id="{name}">{picture.ground}</g>'
        styled = _STYLE.sub(self._as_class, picture.image.replace(GROUND, ground))
        same: dict[str, str] = {}  # id of a mark in this picture -> its name on the page
        rest = _MARK.sub(lambda found: self._once(found, same), styled)
        named = _LABEL.sub(lambda found: found[1] + (same.get(found[2]) or self._short(found[2])), rest)
        return _QUOTED.sub(lambda found: f"={found[1]}{' /' if found[2] else ''}", named)

    def _once(self, found: re.Match[str], same: dict[str, str]) -> str:
        same[found[1]] = self._marks.setdefault(found[2], f"m{len(self._marks)}")
        return ""

    def _short(self, label: str) -> str:
        return self._labels.setdefault(label, f"c{len(self._labels)}")

    def _as_class(self, found: re.Match[str]) -> str:
        name = self._classes.setdefault(found[1], f"p{len(self._classes)}")
        return f' class="{name}"'

    def styles(self) -> str:
        """The rules of the classes that the pictures use."""
        return "".join(f"\n.{name} {{{style}}}" for style, name in self._classes.items())

    def marks(self) -> str:
        """An element that shows nothing and defines the marks that the pictures use."""
        paths = "".join(f'<path id="{name}"{said}/>' for said, name in self._marks.items())
        return f'<svg width="0" height="0" class="marks" aria-hidden="true"><defs>{paths}</defs></svg>'
