"""A store that somebody made: honest ones pass, forgeries are found here and elsewhere, and no code of it runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from few import every
from forging import FORGERIES, forge, move_elsewhere, scaled, seal

import parvibench as pb
from parvibench.cli import app
from parvibench.harness import verification
from parvibench.harness.agreement import contradictions, fresh_runs, law_p_value
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


@pytest.fixture(autouse=True)
def own_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Signatures under a key of this test's own."""
    monkeypatch.setattr(verification.platformdirs, "user_data_path", lambda name: tmp_path / name)


def verified(store: Store, replicates: int = 60, seed: int = 1) -> verification.Verification:
    return verification.verify(store, replicates, HERE, seed=seed)


def test_an_honest_store_has_the_same_bits(honest: Store) -> None:
    found = verified(honest)
    assert {(c.label, c.verdict) for c in found.checks} == {
        (m, "same bits") for m in ("ula", "mala", "svgd", "initial")
    }
    assert (len(found.checks), found.replicates, found.falsified) == (24, 24, ())
    assert found.chance_of_missing == pytest.approx(0.95**24)


@pytest.mark.parametrize("kind", every(6, FORGERIES))
def test_forgeries_are_found_on_the_same_hardware(honest: Store, kind: str) -> None:
    label = "mala" if "acceptance" in kind else "ula"
    forge(honest, label, FORGERIES[kind])
    assert {c.label for c in verified(honest).falsified} == {label}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORGERIES)
def test_forgeries_are_found_elsewhere(honest: Store, kind: str) -> None:
    """Of cells that are tested; the power per kind is measured in `tests/studies/forgeries.py`."""
    label = "mala" if "acceptance" in kind else "ula"
    move_elsewhere(honest)
    forge(honest, label, FORGERIES[kind])
    assert {c.label for c in verified(honest, replicates=10_000).falsified} == {label}


@pytest.mark.ci
def test_elsewhere_an_honest_store_has_the_same_law_and_a_forged_one_has_not(honest: Store) -> None:
    move_elsewhere(honest)
    found = verified(honest, replicates=10_000)
    assert {c.verdict for c in found.checks} == {"same law"}
    assert found.chance_of_missing == pytest.approx((1 - 0.05 * verification.POWER_ELSEWHERE) ** 4)
    forge(honest, "ula", scaled(0.4))
    (wrong,) = verified(honest, replicates=10_000).falsified
    assert (wrong.label, wrong.replicate) == ("ula", None)
    assert "reruns" in wrong.reason


def test_elsewhere_one_replicate_is_not_comparable(tmp_path: Path) -> None:
    pb.run(
        tasks=["banana"], algorithms=["ula"], replicates=1, particles=20, tracking=False, workers=0,
        budget={"iterations": 5}, out=tmp_path / "one",
    )  # fmt: skip
    store = Store(tmp_path / "one")
    move_elsewhere(store)
    found = verified(store)
    assert [c.verdict for c in found.checks] == ["not comparable"]
    assert found.chance_of_missing == 1.0


@pytest.mark.parametrize("replicates", [2, 3, 5, 10, 20, 100])
def test_the_number_of_fresh_runs_can_decide(replicates: int) -> None:
    """The smallest p-value of a cell lies below a tenth of the level, or the cell is not comparable."""
    fresh = fresh_runs(replicates)
    assert fresh == 0 or (fresh + 1) ** -replicates < verification.ALPHA / 40
    assert (fresh == 0) == (replicates == 2)


@pytest.mark.ci
def test_the_test_of_laws_keeps_its_level_and_is_sensitive() -> None:
    """Level 4% in 200 tests of 12 dependent numbers: at most 18 rejected but for one time in 1,000."""
    rng = np.random.default_rng(0)

    def drawn(shift: float = 0.0) -> dict[str, dict[int, float]]:
        effect = rng.normal(size=(12, 1)) * 0
        x = np.exp(effect + rng.normal(size=(12, 6)) + 0.7 * rng.normal(size=(1, 6)) + shift)
        return {"diverged": dict.fromkeys(range(6), 0.0)} | {f"m{i}": dict(enumerate(row)) for i, row in enumerate(x)}

    rejected = sum(law_p_value(drawn(), [drawn() for _ in range(5)], rng)[0] <= 0.04 for _ in range(200))
    assert rejected <= 18
    found = sum(law_p_value(drawn(-2.5), [drawn() for _ in range(5)], rng)[0] <= 0.04 for _ in range(20))
    assert found >= 15


def test_a_cell_that_contradicts_itself_is_found_without_running_it(honest: Store) -> None:
    forge(honest, "svgd", scaled(0.5, metrics=("sliced_w2",), curve=False), other="ula")
    (cell,) = [c for c in honest.run().cells if c.label == "svgd"]
    (reason,) = contradictions(honest.find(cell.key), honest.curve(cell.key))
    assert reason.startswith("sliced_w2 ends at")
    assert "sliced_w2 ends at" in verified(honest, replicates=1).falsified[0].reason


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
def test_the_command_tells_the_chance_of_missing_and_the_page_marks_rows(honest: Store, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from parvibench.reporting.page.report_files import write_report

    folder = str(honest.root)
    done = CliRunner().invoke(app, ["verify", folder, "--replicates", "60", "--workers", "0"])
    assert done.exit_code == 0, done.output
    assert "24 comparisons" in done.output
    assert f"probability {100 * 0.95**24:.2g}%" in done.output
    page = write_report(StoredRun.load(honest), tmp_path / "page").read_text()
    assert "verified" in page
    forge(honest, "svgd", scaled(0.5), other="ula")
    done = CliRunner().invoke(app, ["verify", folder, "--workers", "0", "--json"])
    assert done.exit_code == 1
    assert {c["verdict"] for c in json.loads(done.stdout)["checks"]} == {"same bits", "differs"}


@pytest.mark.ci
def test_a_mark_ends_with_a_change_of_its_cell(honest: Store) -> None:
    verification.keep(verified(honest), honest.root)
    before = verification.marks(StoredRun.load(honest))
    assert set(before.values()) == {"verified"}
    forge(honest, "svgd", scaled(0.5), other="ula")
    after = verification.marks(StoredRun.load(honest))
    assert after == before | {("banana", "svgd"): "unverified"}


@pytest.mark.ci
def test_a_mark_that_came_with_the_store_is_not_believed(
    honest: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = verification.keep(verified(honest), honest.root)
    kept = json.loads(path.read_text())
    for forged in (
        kept | {"signature": "0" * 64},
        {k: v for k, v in kept.items() if k != "signature"},
        kept | {"replicates": 1},
        kept | {"signature": None},
    ):
        path.write_text(json.dumps(forged))
        assert verification.marks(StoredRun.load(honest)) == {}
    path.write_text(json.dumps(kept))
    assert verification.marks(StoredRun.load(honest))
    monkeypatch.setattr(verification.platformdirs, "user_data_path", lambda name: tmp_path / "another user" / name)
    assert verification.marks(StoredRun.load(honest)) == {}


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
