"""Times of every metric on 1000 samples, or as many as it takes: ``make benchmark``."""

from dataclasses import replace
from functools import cache
from typing import Any

import metric_jobs
import pytest
import torch
from torch import Tensor

from parvibench.core import registry
from parvibench.core.metric import Context, Cost, Decisions
from parvibench.core.reference import Reference

METRICS = list(registry.metrics())


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@cache
def of_task(name: str, n: int) -> tuple[Tensor, Context]:
    """Points of the task's initial distribution and all it knows."""
    task = registry.load_task(name)
    target = task.target((0,), "cpu", torch.float64)
    x = task.initial(target, n, [torch.Generator().manual_seed(4)]).double()
    return x, Context(task, target=target, predictive=task.predictive((0,), "cpu", torch.float64))


def prepared(name: str, need: str) -> tuple[Tensor, Context]:
    """Samples and a context that holds what a metric needs."""
    if "window" in name:  # for targets without second moments
        x, context = of_task("student-t", 1000)
        return x, replace(context, reference=Reference(x[0], True, {"bandwidth": 1.0}))
    if need == "predictive":
        return of_task("bnn-diabetes-sklearn", 200)
    if need == "unmixing":
        return of_task("ica-synthetic", 1000)
    full = replace(
        metric_jobs.context(),
        path=normal(1, 500, 20, metric_jobs.DIM),
        cost=Cost(100, 1e4, 1.0, 100.0),
        moved=(normal(1, 1000, metric_jobs.DIM), normal(1, 1000, metric_jobs.DIM)),
        decisions=Decisions(*normal(3, 1, 2000)),
    )
    return metric_jobs.samples(), full


@pytest.mark.benchmark(group="a metric")
@pytest.mark.parametrize("name", METRICS)
def test_metric(benchmark: Any, name: str) -> None:
    metric = registry.load_metric(name)
    x, context = prepared(name, metric.need)
    found = benchmark(metric.compute, x, context)
    assert found.shape == (1,)
