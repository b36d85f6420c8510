"""A page that links several reports, with their main results."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from parvibench.core.errors import InputError
from parvibench.reporting.formatting import named
from parvibench.reporting.text import leaders

_FILE = "summary.json"
#: Most methods that are named for a kind of target.
MOST_NAMED = 3
#: The suites that most readers look for, first; others follow by name.
_FIRST = (
    "models", "posteriors", "multimodal", "toy", "uci-posterior", "uci", "exactness", "dimension", "bandits", "papers",
)  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """What the page of all reports says of one of them."""

    suite: str
    profile: str
    description: str
    run: str  #: its id; empty of the papers' audit, which adds up many
    headline: str  #: what to use for which kind of target
    picture: str = ""  #: an SVG element, the first picture of the page
    kinds: Sequence[dict[str, Any]] = ()  #: of ``kind_in_short``

    def write(self, folder: Path) -> None:
        """Write it beside the report's page."""
        (folder / _FILE).write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def kind_in_short(kind: leaders.Kind) -> dict[str, Any]:
    """What to use for a kind of target, as a summary holds it; ``sure`` orders the same kind of several boards."""
    methods = []
    for m in kind.methods[:MOST_NAMED]:
        where = "" if kind.on_every_task else leaders.on_how_many(m, kind)
        methods.append([leaders.warned(m), f"{leaders.nearness(m, kind)} {where}".strip(), m.cost, m.tuned])
    sure = [bool(methods) and not kind.methods[0].warnings, kind.on_every_task, len(kind.tasks)]
    return {"where": kind.where, "tasks": leaders.tasks(kind), "methods": methods, "unsettled": named(kind.unsettled, 2), "sure": sure}  # fmt: skip


def write_index(folder: Path) -> Path:
    """Write ``index.html`` over the reports in the folders below; its path.

    Raises:
        InputError: no folder below has a report with a summary.
    """
    reports = []
    for file in sorted(folder.glob(f"*/{_FILE}")):
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            known = {k: v for k, v in found.items() if k in Summary.__annotations__}
            reports.append((file.parent.name, Summary(**known)))
        except (ValueError, TypeError, AttributeError):
            raise InputError(f"{file}: not a report's summary; write the report again") from None
    reports.sort(key=lambda report: _FIRST.index(report[1].suite) if report[1].suite in _FIRST else len(_FIRST))
    if not reports:
        say = f"{folder}: no reports below; write one with: parvibench report --out STORE --to {folder}/NAME"
        raise InputError(say)
    import jinja2
    from markupsafe import Markup

    templates = files("parvibench.reporting.page") / "templates"
    style, text = ((templates / file).read_text(encoding="utf-8") for file in ("page.css", "reports.html.j2"))
    template = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(text)
    of_kind: dict[str, list[tuple[str, dict[str, Any]]]] = {}  # board, and what it says of a kind of target
    for name, summary in reports:
        for kind in summary.kinds:
            of_kind.setdefault(kind["where"], []).append((name, kind))
    kinds = []  # the surest board of each kind, and the others that have it; known kinds first
    for boards in of_kind.values():
        surest, kind = max(boards, key=lambda one: one[1]["sure"])
        kinds.append((surest, kind, [other for other, _ in boards if other != surest]))
    kinds.sort(key=lambda row: not row[1]["methods"])
    page = folder / "index.html"
    text = template.render(reports=reports, kinds=kinds, style=Markup(style))
    page.write_text(text, encoding="utf-8")
    return page
