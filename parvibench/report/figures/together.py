"""Many pictures on one page: what they share is there once."""

from __future__ import annotations

import re

from .figure import GROUND, Picture

#: Where the page's style sheet has the styles that the pictures share.
STYLES = "/*pictures*/"
_STYLE = re.compile(r' style="([^"]*)"')


class Pictures:
    """The SVG pictures of a page: their styles become classes, and the ground of panels is drawn by reference."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}
        self._grounds: dict[str, str] = {}

    def element(self, picture: Picture) -> str:
        """The next picture, as it stands in the page."""
        ground = ""
        if picture.ground:
            known = self._grounds.get(picture.ground)
            name = known or self._grounds.setdefault(picture.ground, f"ground-{len(self._grounds)}")
            ground = f'<use href="#{name}"/>' if known else f'<g id="{name}">{picture.ground}</g>'
        return _STYLE.sub(self._as_class, picture.image.replace(GROUND, ground))

    def _as_class(self, found: re.Match[str]) -> str:
        name = self._classes.setdefault(found[1], f"p{len(self._classes)}")
        return f' class="{name}"'

    def styles(self) -> str:
        """The rules of the classes that the pictures use."""
        return "".join(f"\n.{name} {{{style}}}" for style, name in self._classes.items())
