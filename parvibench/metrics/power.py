"""Power of each metric against known alterations: the shipped table of the calibration study."""

from functools import cache
from importlib.resources import files

import pandas as pd

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
def power_table() -> pd.DataFrame:
    """Columns ``dim``, ``n``, ``alteration``, ``metric``, ``trials``, ``found``; from the calibration study."""
    with (files("parvibench.metrics") / "power.csv").open() as file:
        return pd.read_csv(file)


def power_rows(metric: str) -> pd.DataFrame:
    """Shares called distinguishable at n = 1000, alterations by dimensions; ``exact`` is the false-alarm rate."""
    table = power_table()
    rows = table[(table["metric"] == metric) & (table["n"] == SIZE)]
    shares = rows.assign(share=rows["found"] / rows["trials"])
    order = ["exact", *(name for family in FAMILIES.values() for name in family)]
    return shares.pivot_table(index="alteration", columns="dim", values="share").reindex(order)


def detected_alterations(metric: str) -> str:
    """The mildest alteration of each kind that the metric detects at n = 1000, per dimension; empty without a row."""
    rows = power_rows(metric).dropna(how="all")
    if rows.empty:
        return ""
    parts = []
    for family, names in FAMILIES.items():
        mildest = []
        for dim in rows.columns:
            found = [name for name in names if rows[dim].get(name, 0.0) >= DETECTED]
            mildest.append(found[0].removeprefix("shift ").removesuffix(" small") if found else "no")
        if len(names) == 1:
            mildest = ["no" if m == "no" else "yes" for m in mildest]
        parts.append(f"{family}: {' / '.join(mildest)}")
    dims = " / ".join(str(d) for d in rows.columns)
    return f"{'; '.join(parts)} (n = {SIZE}, in {dims} dimensions)"
