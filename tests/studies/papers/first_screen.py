"""What a reader who cites one of the papers learns first: the sentences of ``words.yaml``, with links to the rows they rest on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .audit_tables import anchor
from .paper_words import words


@dataclass(frozen=True)
class Part:
    """A piece of a sentence; ``link`` is the id that it leads to, or empty."""

    text: str
    link: str = ""


Screen = tuple[tuple[Part, ...], ...]

_LINK = re.compile(r"\[([^\]]+)\]\(((?:[^()]|\([^)]*\))+)\)")


def parts(sentence: str) -> tuple[Part, ...]:
    """A sentence by its links.

    >>> [p.link for p in parts("on [Boston](n:sifg/table-1/Boston/SVGD/RMSE) it holds")]
    ['', 'n-sifg-table-1-Boston-SVGD-RMSE', '']
    """
    found, end = [], 0
    for link in _LINK.finditer(sentence):
        words, target = link.groups()
        target = anchor(target.removeprefix("n:")) if target.startswith("n:") else target
        found += [Part(sentence[end : link.start()]), Part(words, target)]
        end = link.end()
    return (*found, Part(sentence[end:]))


#: Key of a paper -> its sentences.
SCREENS: dict[str, Screen] = {key: tuple(map(parts, said)) for key, said in words("screens").items()}
