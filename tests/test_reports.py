"""The committed reports: small, without stores, and with links that lead somewhere."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from command_line import ONE_CELL, Run

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "reports"
MOST_FILES, MOST_BYTES = 350, 20_000_000


class Links(HTMLParser):
    """Targets of a page's links, images and scripts."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for key, value in attributes if key in ("href", "src") and value]


def links(page: Path) -> list[str]:
    if page.suffix == ".html":
        return Links(page).found
    return re.findall(r"\]\(([^)\s]+)[^)]*\)", page.read_text("utf-8"))


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():  # a copy of the sources, or tests next to an installed wheel
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-z", "reports"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_the_reports_are_few_and_small(tracked: list[Path]) -> None:
    assert len(tracked) <= MOST_FILES
    assert sum(file.stat().st_size for file in tracked) <= MOST_BYTES


def test_no_store_is_committed(tracked: list[Path]) -> None:
    """Stores hold ``cells`` and ``runs``; what is published is a page with its tables and figures."""
    assert [file for file in tracked if {"store", "cells", "runs"} & set(file.relative_to(REPORTS).parts)] == []


def test_every_link_of_a_report_leads_somewhere(tracked: list[Path]) -> None:
    pages = [file for file in tracked if file.suffix in (".html", ".md")]
    assert pages
    targets = [(page, urlsplit(link)) for page in pages for link in links(page)]
    inside = [(page, parts.path) for page, parts in targets if parts.path and not parts.scheme]
    broken = [(page, path) for page, path in inside if not (page.parent / unquote(path)).exists()]
    assert broken == []


@pytest.mark.ci
def test_a_compact_report_links_nothing_that_it_leaves_out(call: Run, tmp_path: Path) -> None:
    call("run", *ONE_CELL, "--out", str(tmp_path / "store"))
    whole, part = tmp_path / "whole", tmp_path / "part"
    for folder, options in ((whole, []), (part, ["--compact"])):
        call("report", "--out", str(tmp_path / "store"), "--to", str(folder), *options)
    left_out = {f.name for f in whole.iterdir()} - {f.name for f in part.iterdir()}
    assert left_out == {"leaderboard.csv", "results.json", "results.schema.json", "figures"}
    for folder in (whole, part):
        linked = [urlsplit(link).path for link in links(folder / "index.html")]
        assert all((folder / path).is_file() for path in linked if path)
        assert any(path.startswith("figures/") for path in linked) == (folder == whole)
