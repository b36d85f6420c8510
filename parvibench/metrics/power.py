"""Power of each metric against known alterations: the shipped table of the calibration study."""

import csv
from functools import cache
from importlib.resources import files

#: An alteration is detected where at least this share of the sets is called distinguishable.
DETECTED = 0.9
#: Sample size of the table.
SIZE = 1000
#: Kinds of alteration, each from the mildest on.
FAMILIES = {
    "shift": ("shift 0.02 sd", "shift 0.05 sd", "shift 0.1 sd", "shift 0.25 sd"),
    "too narrow": ("sd 5% small", "sd 10% small", "sd 20% small"),
    "a mode missing": ("one mode missing",),
    "wrong weights": ("weights 60:40",),
    "lost correlation": ("correlation lost",),
}


@cache
def power_table() -> list[dict[str, str]]:
    """Rows with ``dim``, ``n``, ``alteration``, ``metric``, ``trials``, ``found``; from the calibration study."""
    with (files("parvibench.metrics") / "power.csv").open() as file:
        return list(csv.DictReader(file))


def power_rows(metric: str) -> dict[str, dict[int, float]]:
    """Shares called distinguishable at n = 1000: alteration -> dimension -> share; ``exact`` is the false-alarm rate."""
    shares: dict[str, dict[int, float]] = {}
    for row in power_table():
        if row["metric"] == metric and int(row["n"]) == SIZE:
            shares.setdefault(row["alteration"], {})[int(row["dim"])] = int(row["found"]) / int(row["trials"])
    order = ["exact", *(name for family in FAMILIES.values() for name in family)]
    return {alteration: dict(sorted(shares[alteration].items())) for alteration in order if alteration in shares}


def detected_alterations(metric: str) -> str:
    """The mildest alteration of each kind that the metric detects at n = 1000, per dimension; empty without a row."""
    rows = power_rows(metric)
    dims = sorted({dim for shares in rows.values() for dim in shares})
    if not dims:
        return ""
    parts = []
    for family, names in FAMILIES.items():
        mildest = []
        for dim in dims:
            name = next((name for name in names if rows.get(name, {}).get(dim, 0.0) >= DETECTED), "no")
            mildest.append(name.removeprefix("shift ").removesuffix(" small"))
        if len(names) == 1:
            mildest = ["no" if m == "no" else "yes" for m in mildest]
        parts.append(f"{family}: {' / '.join(mildest)}")
    return f"{'; '.join(parts)} (n = {SIZE}, in {' / '.join(map(str, dims))} dimensions)"
