"""Every assembled sentence of a page follows from its results.parquet; false ones are found."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sentences
from made_stores import make_curve, make_record, with_values, write_store

from parvibench.reporting.page.report_files import write_report
from parvibench.reporting.page.reports_index import write_index

REPORTS = Path(__file__).parents[2] / "reports"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Three tasks of two kinds; chains, particles and a failed method; tuned and untuned steps, a budget of its own."""
    generator = np.random.default_rng(3)
    cells = []
    for task in ("banana", "correlated-2d", "student-t"):
        for label, scale, kind in (
            ("svgd", 1.0, "particles"), ("ula", 1.02, "chains"), ("mala", 2.0, "chains"), ("long", 0.5, "chains"), ("initial", 9.0, "anchor"),
        ):  # fmt: skip
            lost = (2,) if label == "mala" and task == "banana" else ()
            curve = make_curve(generator, ["sliced_w2", "ksd"], scale, lost=lost)
            own = {"budget": {"iterations": 9000}, "score_evaluations": 1e6} if label == "long" else {}
            algorithm = "ula" if label == "long" else label
            rhat = {"rhat": [1.2 if task == "banana" else 1.0] * 7, "ess_bulk": [90.0] * 7} if label == "ula" else {}
            record = make_record(
                f"{task}-{label}", task, algorithm, label=label, kind=kind, tuned=label == "svgd", start="task", n_diverged=len(lost), **own
            )  # fmt: skip
            record = with_values(record, curve)
            cells.append((record.model_copy(update={"values": record.values | rhat}), curve, None))
        cells.append((make_record(f"{task}-c", task, "hmc", status="crashed", reason="no memory"), None, None))
    # Replicates that never moved have finite values, and yet no result.
    curve = make_curve(generator, ["sliced_w2", "ksd"], 3.0)
    record = make_record(
        "stuck", "student-t", "sgld", kind="chains", status="diverged", reason="never moved", start="task", n_diverged=7
    )
    cells.append((with_values(record, curve), curve, None))
    suite = {
        "name": "three", "budget": {"scores_per_particle": 400}, "particles": 100, "replicates": 7,
        "tuned": {"step_size": {}, "at_edge": ["banana/svgd"], "score_evaluations": {"banana": {"svgd": 1e6}}},
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("page")
    write_report(write_store(folder / "store", cells, suite), folder / "page", compact=True)
    return folder / "page"


@pytest.mark.ci
def test_every_sentence_of_a_page_follows_from_its_file(page):
    said = sentences.Spans((page / "index.html").read_text()).found
    kinds = {name.split("|")[0] for name in said}
    assert kinds == {"headline", "kind", "use", "task", "protocol", "counts", "untuned", "check", "unfinished"}
    assert {"headline|", "headline|chains", "task|banana|", "task|banana|particles"} <= said.keys()
    assert {"headline|tuned", "headline|self-tuning", "task|banana|self-tuning"} <= said.keys()
    assert sentences.false_sentences(page) == []


def said_instead(page, folder, name, old, new):
    """A copy of the page on which a sentence has other text."""
    shutil.copytree(page, folder)
    text = (page / "index.html").read_text()
    span = re.search(rf'<(span|tbody) data-s="{re.escape(name)}".*?</\1>', text, re.DOTALL)[0]
    changed = span[: span.index(">")] + re.sub(old, new, span[span.index(">") :], count=1)
    assert changed != span
    (folder / "index.html").write_text(text.replace(span, changed))
    return sentences.false_sentences(folder)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("task|correlated-2d|", "svgd", "mala"),
        ("task|banana|particles", r"\d\.\d+ ×", "0.123 ×"),
        ("task|student-t|", "2 of 3", "1 of 3"),
        ("check|Convergence", r"\d+ converged", "12 converged"),
        ("kind|curved, 2-D|", "40,000", "41,000"),
        ("use|curved, 2-D|", "203,961", "204,961"),
        ("use|heavy tails, 2-D|chains", "ula", "svgd"),
        ("headline|", "svgd", "somebody"),
    ],
)
def test_a_planted_false_name_or_number_is_found(page, tmp_path, name, old, new):
    (wrong,) = said_instead(page, tmp_path / "page", name, old, new)
    assert f": {name}\n" in wrong


def test_other_words_for_the_same_are_no_error(page, tmp_path):
    assert said_instead(page, tmp_path / "page", "headline|", "near the best", "close to the lowest") == []


def test_a_planted_rank_in_the_file_is_found(page, tmp_path):
    shutil.copytree(page, tmp_path / "page")
    file = tmp_path / "page" / "results.parquet"
    rows = pd.read_parquet(file)
    rows["ranks"] = rows["ranks"].str.replace('"particles": [1, true]', '"particles": [2, true]', n=1)
    rows.to_parquet(file)
    assert all(
        " among particles: [2, True], is [1, True]" in line for line in sentences.false_sentences(tmp_path / "page")
    )
    assert sentences.false_sentences(tmp_path / "page")


def test_an_id_without_a_recomputation_and_a_page_without_ids_are_found(page, tmp_path):
    shutil.copytree(page, tmp_path / "page")
    file = tmp_path / "page" / "index.html"
    text = file.read_text()
    file.write_text(text.replace('data-s="counts"', 'data-s="praise"'))
    assert ["nothing recomputes praise" in wrong for wrong in sentences.false_sentences(tmp_path / "page")] == [True]
    file.write_text(text.replace("data-s=", "data-t="))
    assert "no sentence with an id" in sentences.false_sentences(tmp_path / "page")[0]


def test_the_front_page_says_what_the_pages_say(page, tmp_path):
    shutil.copytree(page, tmp_path / "three")
    index = write_index(tmp_path)
    assert sentences.Spans(index.read_text()).found.keys() == {"three", "three|curved, 2-D", "three|heavy tails, 2-D"}
    assert sentences.false_on_the_front_page(tmp_path) == []
    index.write_text(index.read_text().replace("40,000", "41,000", 1))
    assert "\n  says " in sentences.false_on_the_front_page(tmp_path)[0]


@pytest.mark.ci
def test_the_published_front_page_says_what_the_files_say():
    assert sentences.false_on_the_front_page(REPORTS) == []


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(p.parent.name, marks=[pytest.mark.ci] if p.parent.name != "multimodal" else [])
        for p in sorted(REPORTS.glob("*/results.parquet"))
    ],
)
def test_published_pages_say_what_their_files_say(folder):
    assert sentences.false_sentences(REPORTS / folder) == []
