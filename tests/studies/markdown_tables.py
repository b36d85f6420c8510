"""Tables of the studies' pages in Markdown."""

from collections.abc import Collection, Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Iterable[object]], right: Collection[str] = ()) -> list[str]:
    """The lines of a table; ``right`` names columns of numbers."""
    rule = ["---:" if title in right else "---" for title in head]
    body = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)]
