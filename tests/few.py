"""Parameters of tests: the default tests take those that are named, so that a new one changes no other; and those that need data."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from parvibench.core import registry
from parvibench.data.fetch import FOLDER_VARIABLE
from parvibench.data.fetch import registry as data_sets


def every(default: Sequence[Any], values: Iterable[Any]) -> list[Any]:
    """The default ones in the default tests; of the others half, by a digest of the name, in those of ``.ci/run`` and half slow."""
    return _marked(
        default,
        [(v, str(v)) for v in values],
        lambda name: (pytest.mark.ci, pytest.mark.slow)[crc32(name.encode()) % 2],
    )


def each(default: Sequence[Any], values: Iterable[Any], ids: Sequence[str] | None = None) -> list[Any]:
    """The default ones where the test runs, the others in the slow tests; ``ids`` name values whose text is no name."""
    values = list(values)
    return _marked(default, list(zip(values, ids or map(str, values), strict=True)), lambda name: pytest.mark.slow)


def _marked(default: Sequence[Any], pairs: list[tuple[Any, str]], mark: Any) -> list[Any]:
    names = set(map(str, default))
    if lost := names - {name for _, name in pairs}:
        raise ValueError(f"no such parameters: {', '.join(sorted(lost))}")
    return [pytest.param(v, marks=[] if name in names else [mark(name)], id=name) for v, name in pairs]


def needs_data(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """Marks of a test on the task's data: skipped where they are not on disk."""
    needed = registry.tasks()[name].data
    if not needed:
        return ()
    folder = Path(os.environ.get(FOLDER_VARIABLE, "nowhere"))
    here = all((folder / data_sets()[n].file).is_file() for n in needed)
    reason = f"needs {', '.join(needed)} on disk: set {FOLDER_VARIABLE}"
    return (pytest.mark.data, pytest.mark.skipif(not here, reason=reason))
