"""Honest stores pass `verify`, forged ones made on this hardware are detected, and no code of a store is run."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import Run
from few import every
from forging import FORGERIES, forge, move_elsewhere, scaled, seal

import parvibench as pb
from parvibench.board import verification
from parvibench.harness.execution import Execution
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import RunCell, Store

HERE = Execution(workers=0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two chains, particles and an anchor, six replicates each."""
    folder = tmp_path_factory.mktemp("made") / "store"
    pb.run(
        tasks=["banana"], algorithms=["ula", "mala", "svgd", "initial"], replicates=6, particles=20, tracking=False, workers=0,
        budget={"iterations": 40}, out=folder,
    )  # fmt: skip
    return folder


@pytest.fixture
def honest(made: Path, tmp_path: Path) -> Store:
    shutil.copytree(made, tmp_path / "theirs")
    return Store(tmp_path / "theirs")


def verified(store: Store, replicates: int = 60, seed: int = 1) -> verification.Verification:
    return verification.verify(store, replicates, HERE, seed=seed)


def test_an_honest_store_has_the_same_bits(honest: Store) -> None:
    found = verified(honest)
    assert {(c.label, c.verdict) for c in found.checks} == {
        (m, "same bits") for m in ("ula", "mala", "svgd", "initial")
    }
    assert (len(found.checks), found.replicates, found.falsified) == (24, 24, ())
    assert found.chance_of_missing == pytest.approx(0.95**24)


#: A forgery of each kind: of values, of a curve, of the cost, of another method's numbers.
DEFAULT = (
    "one metric halved, record only",
    "curve halved before its end",
    "iterations halved, record only",
    "another method's values",
)


@pytest.mark.parametrize("kind", every(DEFAULT, FORGERIES))
def test_forgeries_are_found_on_the_same_hardware(honest: Store, kind: str) -> None:
    label = "mala" if "acceptance" in kind else "ula"
    forge(honest, label, FORGERIES[kind])
    assert {c.label for c in verified(honest).falsified} == {label}


def test_a_store_from_elsewhere_is_not_compared_and_no_chance_is_stated(honest: Store, call: Run) -> None:
    move_elsewhere(honest)
    forge(honest, "ula", scaled(0.5))
    found = verified(honest)
    assert (found.checks, found.compared, len(found.skipped)) == ((), 0, 4)
    answer = call("verify", str(honest.root), "--workers", "0")
    assert answer.code == 0
    assert "not verified (made on other hardware" in answer.out
    assert "0 comparisons" in answer.out
    assert "probability" not in answer.out


def test_reruns_that_fail_are_no_comparisons() -> None:
    failed = verification.Check("banana", "ula", 0, "not run", "timeout")
    done = verification.Verification("run", (failed,) * 6, {}, 24)
    assert (done.compared, done.chance_of_missing) == (0, 1.0)


@pytest.mark.ci
def test_a_store_without_samples_is_verified_by_its_metrics(honest: Store, tmp_path: Path) -> None:
    from parvibench.harness.store.merging import merge

    slim = Store(tmp_path / "slim")
    merge([honest], slim, samples=False)
    assert {c.verdict for c in verified(slim).checks} == {"same metrics"}
    forge(slim, "svgd", scaled(0.99, metrics=("sliced_w2",)), other="ula")
    assert {c.label for c in verified(slim).falsified} == {"svgd"}


@pytest.mark.ci
def test_the_choice_cannot_be_known_and_can_be_repeated(honest: Store) -> None:
    chosen = [{(c.label, c.replicate) for c in verified(honest, 1, seed=s).checks} for s in (3, 3, 4)]
    assert chosen[0] == chosen[1]
    # One replicate is chosen; its chunk of six is compared.
    assert all(len(c) == 6 for c in chosen)


def test_plug_ins_are_not_run(honest: Store, tmp_path: Path) -> None:
    """Not even imported: the store names a file that would leave a trace."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    run = honest.run()
    spec = run.cells[0].spec.model_copy(update={"algorithm": f"{tmp_path / 'evil.py'}:Sampler", "source": "0" * 64})
    record = honest.find(run.cells[0].key).model_copy(update={"spec": spec, "files": {}, "sha256": ""})
    honest.write_cell(record, honest.curve(run.cells[0].key), None)
    run.cells = [RunCell(spec=spec, label="evil"), *[RunCell(spec=c.spec, label=c.label) for c in run.cells[1:]]]
    run.sha256 = ""
    honest.write_run(run)
    assert "plug-in" in verified(honest).skipped["banana / evil"]
    assert not (tmp_path / "trace").exists()


@pytest.mark.ci
def test_the_command_states_the_chance_of_missing(honest: Store, call: Run) -> None:
    done = call("verify", str(honest.root), "--replicates", "60", "--workers", "0")
    assert done.code == 0, done.err
    assert "24 comparisons" in done.out
    assert f"probability {100 * 0.95**24:.2g}%" in done.out
    forge(honest, "svgd", scaled(0.5), other="ula")
    done = call("verify", str(honest.root), "--workers", "0", "--json")
    assert done.code == 1
    assert {c["verdict"] for c in json.loads(done.out)["checks"]} == {"same bits", "differs"}


def test_a_diverged_cell_is_run_again(honest: Store) -> None:
    """Divergence repeats on the same hardware."""
    pb.run(
        tasks=["banana"], algorithms=["ula"], settings={"ula": {"step_size": 50.0}}, replicates=2, particles=4, samples=4,
        tracking=False, workers=0, budget={"iterations": 30}, out=honest.root,
    )  # fmt: skip
    found = verified(Store(honest.root))
    assert [c.status for c in StoredRun.load(honest).cells] == ["diverged"]
    assert {c.verdict for c in found.checks} == {"same bits"}
    seal(honest)
