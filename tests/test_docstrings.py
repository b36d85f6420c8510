"""The examples in docstrings run, and every metric has one."""

import doctest
import importlib
import inspect
import pkgutil
from functools import partial

import pytest

import parvibench.metrics
from parvibench import statistics
from parvibench.core import registry

MODULES = [
    statistics,
    *(
        importlib.import_module(f"parvibench.metrics.{m.name}")
        for m in pkgutil.iter_modules(parvibench.metrics.__path__)
    ),
]


@pytest.fixture(scope="module")
def names() -> dict[str, object]:
    """The names that the docstring of ``parvibench.metrics`` defines for all examples."""
    (preamble,) = doctest.DocTestFinder(recurse=False).find(parvibench.metrics)
    assert doctest.DocTestRunner().run(preamble, clear_globs=False).failed == 0
    return preamble.globs


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_examples_run(module, names: dict[str, object]) -> None:
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names):
        assert doctest.DocTestRunner().run(example).failed == 0, example.name


@pytest.mark.parametrize("name", registry.metrics())
def test_the_example_of_every_metric_runs(name: str, names: dict[str, object]) -> None:
    """A metric is an object, in which the finder above looks for nothing."""
    metric = registry.load_metric(name)
    compute = metric.compute.func if isinstance(metric.compute, partial) else metric.compute
    text = inspect.getdoc(compute) or ""
    example = doctest.DocTestParser().get_doctest(
        text, {**names, compute.__name__: compute, name: metric}, name, None, None
    )
    cure = f"the docstring of {compute.__module__}.{compute.__name__} needs an example: `>>> {name}(x, context)` and its value"
    assert example.examples, cure
    assert doctest.DocTestRunner().run(example).failed == 0
