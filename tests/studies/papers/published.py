"""The numbers of the papers' tables, as printed.

``printed/<paper>.csv`` holds every one of them. Columns: ``table``, ``task`` and ``dataset`` as the paper calls them,
``algorithm``, ``metric``, ``value``, ``std``, ``repeats``, ``suspicious`` (the paper contradicts itself there), ``note``.
A number is named by its pointer, ``paper/table/dataset/algorithm/metric``, the table in lower case with hyphens:
``sifg/table-1/Boston/SVGD/RMSE``. Rows of suites name it so, see ``comparison``.
"""

import csv
import math
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

#: Key -> short title.
PAPERS = {
    "sifg": "SIFG, arXiv:2410.17935",
    "srld": "SRLD, arXiv:2002.09070",
    "ksivi": "KSIVI, arXiv:2405.18997",
    "lapd": "LAPD, arXiv:2403.06183",  # a paper of theory: no numbers
}


class Number(NamedTuple):
    """A published number."""

    pointer: str
    paper: str  #: key of ``PAPERS``
    table: str  #: of the paper
    dataset: str  #: or other setting, in the paper's words
    algorithm: str  #: likewise
    metric: str  #: likewise
    value: float
    unit: float  #: of the last printed digit
    std: float  #: as printed, NaN without one
    repeats: int | None
    suspicious: bool  #: whether the paper contradicts itself there
    note: str

    @property
    def printed(self) -> str:
        """The value with all its printed digits, and the spread."""
        digits = max(0, -round(math.log10(self.unit)))
        return f"{self.value:.{digits}f}" + ("" if math.isnan(self.std) else f" ± {self.std:g}")


@cache
def numbers() -> MappingProxyType[str, Number]:
    """All published numbers by pointer, in the papers' order; ``ValueError`` for a pointer that two have."""
    found: dict[str, Number] = {}
    for paper in PAPERS:
        file = Path(__file__).parent / "printed" / f"{paper}.csv"
        for row in csv.DictReader(file.read_text("utf-8").splitlines()) if file.is_file() else ():
            number = _number(paper, row)
            if number.pointer in found:
                raise ValueError(f"{number.pointer} stands twice in {paper}.csv")
            found[number.pointer] = number
    return MappingProxyType(found)


def _number(paper: str, row: dict[str, str]) -> Number:
    names = row["dataset"], row["algorithm"], row["metric"]
    return Number(
        "/".join((paper, row["table"].lower().replace(" ", "-"), *names)),
        paper,
        row["table"],
        *names,
        value=float(row["value"]),
        unit=10.0 ** -len(row["value"].partition(".")[2]),
        std=float(row["std"] or "nan"),
        repeats=int(row["repeats"]) if row["repeats"] else None,
        suspicious=row["suspicious"] == "True",
        note=row["note"],
    )
