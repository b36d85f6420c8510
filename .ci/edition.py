"""Write an edition: what is installed and the results published in a folder, under a name. ``python .ci/edition.py 2026.12 reports``"""

import sys
from importlib.metadata import version
from pathlib import Path

from parvibench.board.editions import FOLDER, NAME, Edition, reference_digests, suite_digests
from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.harness.store.files import sha256


def freeze(name: str, reports: Path) -> Edition:
    """The edition of what is installed and of the results published in ``reports``."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name}: an edition is named by year and month, such as 2026.12")
    kinds = {"tasks": registry.tasks(), "algorithms": registry.algorithms(), "metrics": registry.metrics()}
    rows = {kind: {n: r.version for n, r in of.items() if r.built_in} for kind, of in kinds.items()}
    published = {p.parent.name: sha256(p.read_bytes()) for p in sorted(reports.glob("*/results.parquet"))}
    return Edition(
        edition=name, parvibench=version("parvibench"), suites=suite_digests(),
        references=reference_digests(rows["tasks"]), results=published, **rows,
    )  # fmt: skip


def write(name: str, reports: Path) -> None:
    """Write the edition into the package."""
    Path(str(FOLDER)).mkdir(exist_ok=True)
    text = freeze(name, reports).model_dump_json(indent=1)
    Path(str(FOLDER / f"{name}.json")).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
