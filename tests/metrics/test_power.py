"""The sentence on a metric's power names the mildest alteration of each kind that it detects, by dimension."""

import pytest

from parvibench.metrics import power


def test_the_mildest_detected_alteration_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 sets 18 are enough and 17 are not; other sizes and other metrics do not count."""
    found = {
        2: {"exact": 1, "shift 0.05 sd": 17, "shift 0.1 sd": 18, "shift 0.25 sd": 20, "sd 5% small": 19,
            "sd 10% small": 20, "one mode missing": 20, "weights 60:40": 3, "correlation lost": 18},
        8: {"exact": 0, "shift 0.25 sd": 17, "sd 20% small": 18, "one mode missing": 17, "correlation lost": 20},
    }  # fmt: skip
    rows = [(d, 1000, a, "m", 20, k) for d, counts in found.items() for a, k in counts.items()]
    others = [(2, 100, "shift 0.02 sd", "m", 20, 20), (2, 1000, "shift 0.02 sd", "other", 20, 20)]
    columns = ["dim", "n", "alteration", "metric", "trials", "found"]
    table = [dict(zip(columns, map(str, row), strict=True)) for row in rows + others]
    monkeypatch.setattr(power, "power_table", lambda: table)
    assert power.detected_alterations("m") == (
        "shift: 0.1 sd / no; too narrow: sd 5% / sd 20%; a mode missing: yes / no; wrong weights: no / no; "
        "lost correlation: yes / yes (n = 1000, in 2 / 8 dimensions)"
    )
    assert power.detected_alterations("nothing") == ""
