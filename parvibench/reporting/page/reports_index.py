"""A page that links several reports, with their main results."""

import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from parvibench.core.errors import InputError

_FILE = "summary.json"
#: The suites that most readers look for, first; others follow by name.
_FIRST = (
    "posteriors",
    "models",
    "multimodal",
    "toy",
    "uci-posterior",
    "uci",
    "exactness",
    "dimension",
    "bandits",
    "papers",
)


@dataclass(frozen=True)
class Summary:
    """What the page of all reports says of one of them."""

    suite: str
    profile: str
    description: str
    run: str  #: its id; empty of the papers' audit, which adds up many
    headline: str  #: who is among the best
    converged: str  #: how many results have converged
    cost: str  #: what the run took
    picture: str = ""  #: an SVG element, the first picture of the page

    def write(self, folder: Path) -> None:
        """Write it beside the report's page."""
        (folder / _FILE).write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def write_index(folder: Path) -> Path:
    """Write ``index.html`` over the reports in the folders below; its path.

    Raises:
        InputError: no folder below has a report with a summary.
    """
    reports = []
    for file in sorted(folder.glob(f"*/{_FILE}")):
        try:
            reports.append((file.parent.name, Summary(**json.loads(file.read_text(encoding="utf-8")))))
        except (ValueError, TypeError):
            raise InputError(f"{file}: not a report's summary; write the report again") from None
    reports.sort(key=lambda report: _FIRST.index(report[1].suite) if report[1].suite in _FIRST else len(_FIRST))
    if not reports:
        raise InputError(
            f"{folder}: no reports below; write one with: parvibench report --out STORE --to {folder}/NAME"
        )
    import jinja2
    from markupsafe import Markup

    templates = files("parvibench.reporting.page") / "templates"
    style, text = ((templates / file).read_text(encoding="utf-8") for file in ("page.css", "reports.html.j2"))
    template = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(text)
    page = folder / "index.html"
    page.write_text(template.render(reports=reports, style=Markup(style)), encoding="utf-8")
    return page
