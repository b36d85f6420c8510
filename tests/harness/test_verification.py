"""A store that somebody made: honest ones pass, falsified records and samples are found, and no code of it runs."""

import json
from pathlib import Path

import numpy as np
import pytest

from parvibench import api
from parvibench.cli import app
from parvibench.harness import verification
from parvibench.harness.execution import Execution
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import RunCell, Store

HERE = Execution(workers=0)


@pytest.fixture
def honest(tmp_path: Path) -> StoredRun:
    """Two methods and an anchor, four replicates each."""
    return api.run(
        tasks=["banana"], algorithms=["ula", "svgd", "initial"], replicates=4, particles=20, tracking=False, workers=0,
        budget={"iterations": 20}, out=tmp_path / "theirs",
    )  # fmt: skip


def falsify(results: StoredRun, label: str, samples=None, **values) -> Store:
    """Write a cell again, with whole seals, as one who wants to deceive would."""
    store = results.store
    (cell,) = [c for c in results.cells if c.label == label]
    record = store.find(cell.key)
    record = record.model_copy(update={"values": record.values | values, "files": {}, "sha256": ""})
    kept = store.samples(cell.key) if samples is None else samples
    store.write_cell(record, store.curve(cell.key), kept)
    run = store.run()
    run.cells = [RunCell(spec=c.spec, label=c.label) for c in run.cells]
    run.sha256 = ""
    store.write_run(run)
    return store


def test_an_honest_store_has_the_same_bits(honest: StoredRun) -> None:
    found = verification.verify(honest.store, 60, HERE, seed=1)
    assert {(c.label, c.verdict) for c in found.checks} == {(m, "same bits") for m in ("ula", "svgd", "initial")}
    assert (len(found.checks), found.replicates, found.falsified) == (12, 12, ())
    assert found.chance_of_missing == pytest.approx(0.95**12)


def test_a_record_better_than_its_samples_is_found(honest: StoredRun) -> None:
    stored = next(c for c in honest.cells if c.label == "svgd").values["sliced_w2"]
    store = falsify(honest, "svgd", sliced_w2=[stored[0], stored[1] / 2, *stored[2:]])
    found = verification.verify(store, 60, HERE, seed=1)
    assert [(c.label, c.replicate) for c in found.falsified] == [("svgd", 1)]
    assert "sliced_w2 of the stored samples" in found.falsified[0].reason


def test_exact_draws_passed_off_as_a_methods_samples_are_found(honest: StoredRun) -> None:
    """Record and samples agree with each other, but the method does not give them."""
    from parvibench.core import registry
    from parvibench.metrics.evaluate import evaluate_samples  # noqa: F401  (the metrics of such samples are plausible)

    task = registry.load_task("banana")
    import torch

    draws = task.exact(80, torch.Generator().manual_seed(0)).reshape(4, 20, 2).float().numpy()
    found = verification.verify(falsify(honest, "svgd", samples=draws), 60, HERE, seed=1)
    assert {c.replicate for c in found.falsified} == {0, 1, 2, 3}
    assert all("other samples" in c.reason for c in found.falsified)


def test_elsewhere_a_rerun_must_lie_within_the_spread(honest: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "hardware", lambda device: "another machine")
    found = verification.verify(honest.store, 60, HERE, seed=1)
    assert {c.verdict for c in found.checks} == {"within tolerance"}
    values = next(c for c in honest.cells if c.label == "ula").values["ess_bulk"]
    spread = np.subtract(*np.percentile(values, [75, 25])) / 1.35
    far = max(values) + 20 * spread + max(values)
    store = falsify(honest, "ula", ess_bulk=[far, *values[1:]])
    found = verification.verify(store, 60, HERE, seed=1)
    assert [(c.label, c.replicate) for c in found.falsified] == [("ula", 0)]


def test_a_store_without_samples_is_verified_by_its_metrics(honest: StoredRun, tmp_path: Path) -> None:
    from parvibench.harness.store.merging import merge

    slim = Store(tmp_path / "slim")
    run, _ = merge([honest.store], slim, samples=False)
    found = verification.verify(slim, 60, HERE, seed=1)
    assert {c.verdict for c in found.checks} == {"same metrics"}
    stored = next(c for c in honest.cells if c.label == "svgd").values["sliced_w2"]
    found = verification.verify(
        falsify(StoredRun.load(slim, run.id), "svgd", sliced_w2=[stored[0], stored[1] * 0.99, *stored[2:]]),
        60,
        HERE,
        seed=1,
    )
    assert [(c.label, c.replicate) for c in found.falsified] == [("svgd", 1)]
    assert "sliced_w2 is" in found.falsified[0].reason


def test_the_choice_cannot_be_known_and_can_be_repeated(honest: StoredRun) -> None:
    chosen = [
        {(c.label, c.replicate) for c in verification.verify(honest.store, 1, HERE, seed=s).checks} for s in (3, 3, 4)
    ]
    assert chosen[0] == chosen[1]
    # One replicate is chosen; its chunk of four is compared.
    assert all(len(c) == 4 for c in chosen)


def test_plug_ins_are_not_run(honest: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even imported: the store names a file that would leave a trace."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    run = honest.store.run()
    spec = run.cells[0].spec.model_copy(update={"algorithm": f"{tmp_path / 'evil.py'}:Sampler", "source": "0" * 64})
    record = honest.store.find(honest.cells[0].key).model_copy(update={"spec": spec, "files": {}, "sha256": ""})
    honest.store.write_cell(record, honest.store.curve(honest.cells[0].key), None)
    run.cells = [RunCell(spec=spec, label="evil"), *[RunCell(spec=c.spec, label=c.label) for c in run.cells[1:]]]
    run.sha256 = ""
    honest.store.write_run(run)
    found = verification.verify(honest.store, 60, HERE, seed=1)
    assert "plug-in" in found.skipped["banana / evil"]
    assert not (tmp_path / "trace").exists()


def test_the_command_tells_the_chance_of_missing_and_the_page_marks_rows(honest: StoredRun, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from parvibench.reporting.page.report_files import write_report

    folder = str(honest.store.root)
    done = CliRunner().invoke(app, ["verify", folder, "--replicates", "60", "--workers", "0"])
    assert done.exit_code == 0, done.output
    assert "12 of 12 replicates" in done.output
    assert f"probability {100 * 0.95**12:.2g}%" in done.output
    kept = json.loads((honest.store.root / "verification.json").read_text())
    assert len(kept["checks"]) == 12
    page = write_report(StoredRun.load(honest.store), tmp_path / "page").read_text()
    assert "verified" in page
    stored = next(c for c in honest.cells if c.label == "svgd").values["sliced_w2"]
    falsify(honest, "svgd", sliced_w2=[v / 2 for v in stored])
    done = CliRunner().invoke(app, ["verify", folder, "--workers", "0", "--json"])
    assert done.exit_code == 1
    assert {c["verdict"] for c in json.loads(done.stdout)["checks"]} == {"same bits", "differs"}
