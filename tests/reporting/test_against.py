"""Published results beside a run's: one board a task, pairs where seeds match, and what differs."""

import numpy as np
import pandas as pd
import pytest
from command_line import ONE_CELL, Run
from made_stores import make_curve, make_record, with_values, write_store

from parvibench.core.errors import InputError
from parvibench.reporting.facts import against


def frame(folder, seed=3, **changes):
    """Values of a run of two methods on banana."""
    generator = np.random.default_rng(seed)
    cells = []
    for label, scale in (("svgd", 1.0), ("ula", 2.0)):
        curve = make_curve(generator, ["sliced_w2", "ksd"], scale)
        cells.append((with_values(make_record(label, "banana", label, **changes), curve), curve, None))
    results = write_store(folder, cells)
    return results.values()


@pytest.fixture
def theirs(tmp_path):
    file = tmp_path / "results.parquet"
    frame(tmp_path / "theirs").to_parquet(file)
    return against.published(str(file))


def test_the_same_run_is_equal_and_stands_beside_itself(theirs, tmp_path):
    board, said = against.beside(frame(tmp_path / "mine"), theirs)
    assert board[["label", "whose"]].to_numpy().tolist() == [
        ["svgd", "yours"], ["svgd", "published"], ["ula", "yours"], ["ula", "published"]
    ]  # fmt: skip
    assert board["value"].tolist() == pytest.approx(
        np.repeat(theirs.groupby("label")["value"].median() / 0.05, 2).tolist()
    )
    assert set(board["unit"]) == {"× floor"}
    assert said == [f"{m} on banana: equal to the published values in 7 replicates." for m in ("svgd", "ula")]


def test_another_result_at_equal_seeds_is_a_paired_difference(theirs, tmp_path):
    mine = frame(tmp_path / "mine", seed=4)
    _, (said, _) = against.beside(mine, theirs)
    pair = [f[(f["label"] == "svgd") & (f["metric"] == "sliced_w2")]["value"].to_numpy() for f in (mine, theirs)]
    assert said.startswith(f"svgd on banana: {np.mean(pair[0] - pair[1]) / 0.05:.3g}"[:22])
    assert " × floor [" in said
    assert said.endswith("above the published values, 7 pairs.")


def test_what_differs_is_told_and_nothing_is_paired(theirs, tmp_path):
    _, said = against.beside(frame(tmp_path / "mine", seed=4, particles=50, budget={"iterations": 40}), theirs)
    assert said[0] == (
        'svgd on banana: not paired with the published replicates; differs: budget {"iterations": 40} against '
        '{"iterations": 400}, particles 50 against 100.'
    )


def test_bad_input_is_told(theirs, tmp_path):
    with pytest.raises(InputError, match=r"nowhere: no published results; give a suite of reports/"):
        against.published("nowhere")
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(InputError, match=r"bad\.parquet: no published results"):
        against.published(str(tmp_path / "bad.parquet"))
    pd.DataFrame({"task": ["banana"]}).to_parquet(tmp_path / "old.parquet")
    with pytest.raises(InputError, match="of an older format, without"):
        against.published(str(tmp_path / "old.parquet"))
    with pytest.raises(InputError, match="no task and metric in common"):
        against.beside(frame(tmp_path / "mine").assign(task="other"), theirs)


@pytest.mark.ci
def test_a_run_ends_with_what_it_found(call: Run, tmp_path):
    store = tmp_path / "store"
    call("run", *ONE_CELL, "--out", str(store))
    words = [word for word in ONE_CELL if word != "--quiet"]
    said = call("run", *words, "--out", str(store), "--against", str(store / "report" / "results.parquet"))
    assert "svgd on banana: equal to the published values in 2 replicates." in " ".join(said.out.split())
    refused = call("run", *words, "--out", str(store), "--against", "nowhere")
    assert refused.code == 2
    assert "no published results" in " ".join(refused.err.split())
