"""Formulas of metrics, written out: they agree with the metrics, and a slip in one of these is seen."""

import pytest
import torch

from parvibench.checks.rounds import check
from parvibench.checks.truth.metrics.plain_metrics import PlainMetrics
from parvibench.metrics import chains, mmd, stein, transport


def test_metrics_are_what_their_formulas_give() -> None:
    result = check([PlainMetrics()], seed=4)
    assert result.verdict == "pass"
    assert len(result.tests) > 20


@pytest.mark.parametrize(
    ("module", "name", "slip", "seen"),
    [
        (mmd, "_FIXED_BANDWIDTH", lambda h: 2 * h, {"mmd2_u_fixed"}),
        (transport, "thin", lambda thin: lambda x, most: thin(x, most)[1:], {"w1", "w2", "w2sq_window_5"}),
        (chains, "_GROUPS", lambda n: n - 1, {"nested rhat"}),
        (stein, "_scale", lambda scale: lambda *args: 1.01 * scale(*args), {"ksd", "ksd_u", "ksd_rbf"}),
    ],
)
def test_a_slip_is_seen_where_it_acts(monkeypatch, module, name, slip, seen) -> None:
    monkeypatch.setattr(module, name, slip(getattr(module, name)))
    with torch.inference_mode():
        result = check([PlainMetrics()], seed=4)
    assert result.verdict == "wrong"
    found = {t.metric.removeprefix("formula[").removesuffix("]") for t in result.red}
    assert seen <= found
    assert found <= seen | {"w2sq_window_8", "w2sq_window_10"}
    assert all("against its formula" in t.reason for t in result.red)
