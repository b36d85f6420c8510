"""Tests that need data sets on disk."""

import os
from pathlib import Path

import pytest

from parvibench.core import registry
from parvibench.data.fetch import FOLDER_VARIABLE
from parvibench.data.fetch import registry as data_sets


def needs_data(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """Marks of a test on the task's data: skipped where they are not on disk."""
    needed = registry.tasks()[name].data
    if not needed:
        return ()
    folder = Path(os.environ.get(FOLDER_VARIABLE, "nowhere"))
    here = all((folder / data_sets()[n].file).is_file() for n in needed)
    reason = f"needs {', '.join(needed)} on disk: set {FOLDER_VARIABLE}"
    return (pytest.mark.data, pytest.mark.skipif(not here, reason=reason))
