"""One page over several reports: links, headlines, and nothing of a name is obeyed."""

import numpy as np
import pytest
import sentences
from made_stores import EVIL, make_curve, make_record, only_reference, with_values, write_store
from typer.testing import CliRunner

from parvibench.cli import app
from parvibench.reporting.page.report_files import write_report


def test_the_index_links_reports_with_their_headlines(tmp_path):
    curve = make_curve(np.random.default_rng(0), ["sliced_w2"], 1.0)
    with only_reference(None, None):
        for name, label in (("toy", "ula"), ("uci", EVIL)):
            cells = [(with_values(make_record(name, "banana", "ula", label=label), curve), curve, None)]
            write_report(
                write_store(tmp_path / "stores" / name, cells, {"name": name, "description": EVIL}), tmp_path / name
            )
    done = CliRunner().invoke(app, ["report", "--index", str(tmp_path)])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "index.html").read_text()
    for name in ("toy", "uci"):
        assert f'href="{name}/index.html"' in page
    assert {"toy", "uci", "toy|curved, 2-D"} == set(sentences.Spans(page).found)  # a kind of two boards has one row
    assert page.count("<svg") == 2
    assert page.index('href="toy/') < page.index('href="uci/')
    assert "<script" not in page


@pytest.mark.parametrize("content", [None, "[]", "{}"])
def test_a_folder_without_reports_is_told(tmp_path, content):
    if content is not None:
        (tmp_path / "toy").mkdir()
        (tmp_path / "toy" / "summary.json").write_text(content)
    done = CliRunner().invoke(app, ["report", "--index", str(tmp_path)])
    assert done.exit_code != 0
    assert not (tmp_path / "index.html").exists()
