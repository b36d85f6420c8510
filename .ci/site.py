"""Check the built site: every link inside it leads somewhere, and no page is longer or larger than it may be.

Usage: site.py SITE
"""

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

MOST_WORDS = 500
MOST_BYTES = 1_500_000


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if anchor := found.get("id") or found.get("name"):
            self.anchors.add(anchor)
        if tag == "a" and (link := found.get("href")):
            self.links.append(link)
        for name in ("src", "href"):
            if tag in ("script", "img", "link") and (target := found.get(name)) and found.get("rel") != "canonical":
                self.loads.append(target)


@cache
def parsed(file: Path) -> Page:
    page = Page()
    page.feed(file.read_text("utf-8"))
    return page


def broken(file: Path, link: str, *, loaded: bool = False) -> str:
    """Why a link of a page leads nowhere; empty where it does, or leads out of the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return "is loaded from the network" if loaded and parts.scheme != "data" else ""
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return "no such file"
    known = target.suffix != ".html" or not parts.fragment or parts.fragment.startswith(":~:")
    plain = parts.fragment.partition("?")[0]
    return "" if known or unquote(plain) in parsed(target).anchors else "no such anchor"


def long_pages(sources: Path) -> list[str]:
    """Pages of more than ``MOST_WORDS`` words without a picture, a table or code."""
    found = []
    for file in sorted(sources.rglob("*.md")):
        text = file.read_text("utf-8")
        if len(text.split()) > MOST_WORDS and not re.search(r"^\||!\[|^```(?!\{toctree)", text, flags=re.M):
            found.append(f"{file}: more than {MOST_WORDS} words without a picture, a table or code")
    return found


if __name__ == "__main__":
    site = Path(sys.argv[1])
    pages = sorted(site.rglob("*.html"))
    problems = long_pages(Path("docs"))
    problems += [
        f"{file.relative_to(site)}: over {MOST_BYTES:,} bytes" for file in pages if file.stat().st_size > MOST_BYTES
    ]
    for file in pages:
        page = parsed(file)
        reasons = [(link, broken(file, link)) for link in page.links]
        reasons += [(link, broken(file, link, loaded=True)) for link in page.loads]
        problems += [f"{file.relative_to(site)}: {link}: {reason}" for link, reason in dict.fromkeys(reasons) if reason]
    print("\n".join(problems) or f"site: {len(pages)} pages, no broken link")
    sys.exit(bool(problems))
