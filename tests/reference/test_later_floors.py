"""Noise floors of sample sizes that a reference was not built for are simulated when they are first needed, and stored."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

import parvibench as pb
from parvibench.core.errors import InputError
from parvibench.core.metric import Context
from parvibench.core.reference import load_pool, load_reference
from parvibench.metrics import own_floors
from parvibench.metrics.compute import values_of
from parvibench.metrics.floors import verdict_metrics
from parvibench.metrics.own_floors import with_floors
from parvibench.reference import build
from parvibench.reference.checks import verify
from parvibench.reference.gates import Effort

FOLDER = Path("parvibench-references")


def draw(n: int, generator: Generator) -> torch.Tensor:
    return 3 + 2 * torch.randn(n, 2, generator=generator, dtype=torch.float64)


TASK = pb.task(lambda x: -((x - 3) ** 2).sum() / 8, dim=2, exact=draw, name="later")


def built(samples: int = 0) -> Path:
    return build.build(TASK, None, Effort("exact"), lambda *_: None, samples=samples)[0]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few rows and sets, three sizes, and an empty folder."""
    for name, value in {"SIZES": (50, 100, 200), "SETS_A_METRIC": 1, "FEWEST": 60, "CURVE": (5,)}.items():
        monkeypatch.setattr(own_floors, name, value)
    monkeypatch.setattr(build, "ROWS", 500)
    monkeypatch.setattr(build, "POOL", 4000)
    monkeypatch.chdir(tmp_path)


def sizes(reference: object, metric: str) -> list[int]:
    return sorted(reference.floors.get(metric, {}))  # type: ignore[attr-defined]


def test_a_build_has_the_floors_that_were_asked_for_and_the_curve() -> None:
    """By default at the number of particles."""
    built()
    assert sizes(TASK.reference(), "mmd2") == [100]
    assert sizes(TASK.reference(), "sliced_w2") == [5, 50, 100, 200]
    built(samples=70)
    assert sizes(TASK.reference(), "mmd2") == [50]
    assert {p.name for p in FOLDER.iterdir()} == {"later.json", "later.npz", "later.pool.npy"}


def test_no_draw_behind_the_floors_is_among_the_rows() -> None:
    """Of chains: the floor's sets come from times before those of the rows."""
    chains = draw(4 * 1000, Generator().manual_seed(1)).reshape(4, 1000, 2)
    build.build_from_draws(TASK, None, chains, lambda *_: None)
    reference = TASK.reference()
    rows = {row.tobytes() for row in reference.draws.numpy()}
    pool = load_pool("later", reference.certificate).numpy()
    assert len(pool) > 2000
    assert not any(row.tobytes() in rows for row in pool)


def test_later_floors_are_those_of_a_build_at_that_size() -> None:
    built(samples=200)
    whole = load_reference("later").floors
    built(samples=50)
    later = with_floors(TASK, TASK.reference(), 230).floors
    assert set(later) == set(whole) == set(verdict_metrics(TASK))
    assert all(np.array_equal(table[200], later[metric][200]) for metric, table in whole.items())
    assert {c.passed for c in verify(TASK) if c.name != "floors"} == {True}


def test_later_floors_have_the_law_of_fresh_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1e-4, by Kolmogorov and Smirnov."""
    monkeypatch.setattr(own_floors, "FEWEST", 200)
    built()
    reference, g, names = (
        with_floors(TASK, TASK.reference(), 50),
        Generator().manual_seed(9),
        ("mmd2", "sliced_w2", "ksd"),
    )
    context = Context(TASK, reference, TASK.target([0], "cpu", torch.float64))
    fresh = [values_of(names, draw(50, g), context) for _ in range(200)]
    for name in names:
        assert stats.ks_2samp([v[name] for v in fresh], reference.floors[name][50]).pvalue > 1e-4


def test_results_do_not_depend_on_which_floors_were_simulated_before() -> None:
    built()
    x = draw(60, Generator().manual_seed(3))
    first = pb.evaluate(x, task=TASK)
    assert first["n_judged"] == 50
    pb.evaluate(draw(200, Generator().manual_seed(4)), task=TASK)
    assert {p.name for p in FOLDER.glob("*.floors-*")} == {"later.floors-50.npz", "later.floors-200.npz"}
    assert pb.evaluate(x, task=TASK) == first


def test_floors_are_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built()
    once = with_floors(TASK, TASK.reference(), 50).floors
    monkeypatch.setattr(own_floors, "pooled_floors", None)
    again = with_floors(TASK, TASK.reference(), 50).floors
    assert all(np.array_equal(table[50], again[metric][50]) for metric, table in once.items())


@pytest.mark.parametrize("what", ["cut", "of an earlier reference"])
def test_floors_that_do_not_fit_are_simulated_again(what: str) -> None:
    built()
    right = with_floors(TASK, TASK.reference(), 50).floors["ksd"][50]
    file = FOLDER / "later.floors-50.npz"
    content = file.read_bytes()
    if what == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        with np.load(file) as stored:
            np.savez(file, **{key: stored[key] + 1.0 if "/" in key else "0" * 64 for key in stored.files})
    assert sizes(load_reference("later"), "ksd") == [100]
    assert np.array_equal(with_floors(TASK, TASK.reference(), 50).floors["ksd"][50], right)


def test_a_reference_with_later_floors_passes_its_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_floors, "FEWEST", 200)
    built()
    with_floors(TASK, TASK.reference(), 50)
    assert sizes(load_reference("later"), "ksd") == [50, 100]
    assert [check.found for check in verify(TASK) if check.name == "floors" and not check.passed] == []


@pytest.mark.parametrize("content", ["", '{"rows": 5', "[]", '{"rows": 500}'])
def test_a_damaged_certificate_is_refused_and_built_again(content: str) -> None:
    certificate = built()
    certificate.write_text(content)
    with pytest.raises(InputError, match=r"later\.json: damaged.*\n.*parvibench reference build later"):
        pb.evaluate(draw(50, Generator().manual_seed(3)), task=TASK)
    assert [(check.name, check.passed) for check in verify(TASK)] == [("files", False)]
    built()
    assert pb.evaluate(draw(100, Generator().manual_seed(3)), task=TASK)["n_judged"] == 100


def test_another_build_has_no_floors_of_the_one_before() -> None:
    built()
    with_floors(TASK, TASK.reference(), 50)
    built()
    assert not list(FOLDER.glob("*.floors-*"))


@pytest.mark.parametrize("change", [Path.unlink, lambda p: p.write_bytes(p.read_bytes()[:-8])])
def test_a_missing_pool_is_one_clear_line(change: object) -> None:
    built()
    change(FOLDER / "later.pool.npy")  # type: ignore[operator]
    assert pb.evaluate(draw(100, Generator().manual_seed(3)), task=TASK)["n_judged"] == 100
    with pytest.raises(
        InputError, match=r"later\.pool\.npy: missing, or not .*: parvibench reference build"
    ) as refused:
        pb.evaluate(draw(50, Generator().manual_seed(3)), task=TASK)
    assert "\n" not in str(refused.value)


def test_references_without_a_pool_are_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an earlier version all floors stood beside the draws."""
    with monkeypatch.context() as before:
        before.setattr(build, "_plan", lambda task, pool, *_: own_floors.plan_of(task, (50, 100, 200), (50, 100, 200)))
        path = built()
    (FOLDER / "later.pool.npy").unlink()
    known = {key: value for key, value in json.loads(path.read_text()).items() if key != "pool"}
    path.write_text(json.dumps(known))
    assert pb.evaluate(draw(50, Generator().manual_seed(3)), task=TASK)["n_judged"] == 50
    assert TASK.reference().pool_sizes == ()


def test_a_run_simulates_its_floors_before_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    built()
    said: list[str] = []
    options = {"budget": {"iterations": 5}, "workers": 0, "tracking": False, "replicates": 3, "warn": said.append}
    results = pb.run(tasks=[TASK], algorithms=["exact"], particles=50, out="store", **options)
    assert said == ["noise floors at n = 50"]
    (row,) = results.leaderboard().to_dict("records")
    assert row["verdict"] in ("indistinguishable", "distinguishable")
    assert re.match(r"n = 50, by .*mmd2", row["verdict_basis"])
