"""tail_error: a known answer, an independent plain program, and the two alterations that no other metric saw."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from parvibench.core.metric import Context, NotApplicable
from parvibench.core.registry import load_task
from parvibench.metrics.tails import tail_error


def relative_entropy(q: float, p: float) -> float:
    terms = [(q, p), (1 - q, 1 - p)]
    return sum(a * math.log(a / b) for a, b in terms if a > 0)


def plain(x: np.ndarray, rows: np.ndarray, log_density: Callable[[np.ndarray], float]) -> float:
    """The definition, threshold by threshold: every sample's own value, from both sides, and 5%."""
    centre = np.quantile(rows, 0.5, axis=0)
    spread = np.quantile(rows, 0.84, axis=0) - np.quantile(rows, 0.16, axis=0)
    worst = 0.0
    for h in (lambda z: max(abs((z - centre) / spread)), lambda z: -log_density(z)):
        of_rows, n = [h(z) for z in rows], len(x)
        p = [(1 + sum(r >= h(z) for r in of_rows)) / (1 + len(rows)) for z in x]
        for threshold in [*p, 0.05]:
            if threshold > 0.05:
                continue
            below, at_most = sum(v < threshold for v in p) / n, sum(v <= threshold for v in p) / n
            if below < threshold:
                worst = max(worst, relative_entropy(below, threshold))
            if at_most > threshold:
                worst = max(worst, 0.5 * relative_entropy(at_most, threshold))
    return worst


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.6])
def test_it_is_its_definition(seed: int, scale: float, make_context) -> None:
    g = Generator().manual_seed(seed)
    rows, x = (torch.randn(m, 3, generator=g, dtype=torch.float64) for m in (300, 40))
    x = scale * x
    found = tail_error(x[None], make_context(3, rows)).item()
    expected = plain(x.numpy(), rows.numpy(), lambda z: -0.5 * float(np.sum(z**2)))
    assert found == pytest.approx(expected, rel=1e-9)


def test_empty_and_full_tails(make_context, randn) -> None:
    """No sample where 5% belong: -log(95%); all of them beyond the whole reference: half of log(1 + m)."""
    rows = randn(999, 2)
    context = make_context(2, rows)
    centre = rows.median(0).values
    assert tail_error((centre + 1e-3 * randn(50, 2))[None], context).item() == pytest.approx(-math.log(0.95))
    assert tail_error((100 + randn(50, 2))[None], context).item() == pytest.approx(math.log(1000) / 2)


def test_it_needs_a_density_and_a_reference(make_context, randn) -> None:
    for context, reason in (
        (Context(make_context(2).task, make_context(2, randn(20, 2)).reference), "density"),
        (make_context(2), "reference"),
    ):
        with pytest.raises(NotApplicable, match=reason):
            tail_error(randn(1, 10, 2), context)


def cut_student(x: Tensor, density: Tensor) -> Tensor:
    return x.abs().amax(1) < 5


def outer_percent(x: Tensor, density: Tensor) -> Tensor:
    return density > density.quantile(0.01)


@pytest.mark.parametrize(("name", "kept"), [("student-t", cut_student), ("banana", outer_percent)])
def test_missing_tails_are_seen_in_most_sets_of_a_thousand(name: str, kept, generator: Generator) -> None:
    """The share found of 60 altered sets, at the level of the shipped floors: 95% and more are; 4 of 5 is the bar."""
    task = load_task(name)
    context = Context(task, task.reference(), task.target([0], "cpu", torch.float64))
    x = task.exact(80_000, generator)
    x = x[kept(x, context.target.log_density(x[None])[0])][:60_000].reshape(60, 1000, -1)
    floor = np.sort([tail_error(task.exact(1000, generator)[None], context).item() for _ in range(400)])
    found = tail_error(x, context).numpy()
    assert np.mean(found > np.quantile(floor, 0.95)) > 0.8
