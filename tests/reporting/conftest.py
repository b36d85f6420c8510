"""A made store and its report, shared by the tests of the page and those in a browser."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from made_stores import made_cells, only_reference, write_store

from parvibench.core.reference import Reference
from parvibench.reporting.page.report_files import write_report

sys.path.append(str(Path(__file__).parents[1] / "studies"))  # its programs are tested here


@pytest.fixture(scope="module", autouse=True)
def floors():
    """A floor of 0.05 for banana at 100 samples, one of ksd that nothing reaches, and no other reference, whatever ships with the package."""
    table = {"sliced_w2": {n: np.linspace(0.4, 0.6, 201) / n**0.5 for n in (25, 100, 400)}}
    table["ksd"] = {100: np.linspace(50, 60, 201)}
    reference = Reference(torch.zeros(9, 2), True, {}, table)
    with only_reference("banana", reference):
        yield


@pytest.fixture
def no_floors():
    with only_reference(None, None):
        yield


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    suite = {"tuned": {"step_size": {}, "at_edge": ["banana/ula"], "score_evaluations": {"banana": {"ula": 1e6}}}}
    cells = [
        (r.model_copy(update={"tuned": True}) if (r.task, r.label) == ("banana", "ula") else r, c, s)
        for r, c, s in made_cells()
    ]
    return write_store(tmp_path_factory.mktemp("made"), cells, suite)


@pytest.fixture(scope="module")
def out(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "report"
    assert write_report(results, folder) == folder / "index.html"
    return folder
