"""The document behind ``parvibench evaluate``, on the shipped banana."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

import parvibench as pb
from parvibench import run
from parvibench.core.errors import InputError, ShapeError
from parvibench.core.metric import Context, Cost
from parvibench.core.registry import load_task
from parvibench.metrics.compute import compute_guarded, copied_rows
from parvibench.metrics.evaluate import chain_diagnostics, evaluate_samples, serially_correlated
from parvibench.metrics.floors import verdict_metrics

BANANA = load_task("banana")
SD = BANANA.facts.sd


@pytest.fixture(scope="module")
def exact() -> torch.Tensor:
    return BANANA.exact(1000, Generator().manual_seed(11))


def rows(document: dict) -> dict[str, dict]:
    return {row["metric"]: row for row in document["metrics"]}


def test_exact_draws(exact: torch.Tensor) -> None:
    document = evaluate_samples(BANANA, exact)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["task"], document["n"], document["verdict"]) == ("banana", 1000, "indistinguishable")
    found = rows(document)
    assert set(found) == set(BANANA.metrics)
    sliced = found["sliced_w2"]
    assert sliced["verdict"] == "indistinguishable"
    assert sliced["ratio"] == pytest.approx(sliced["value"] / sliced["floor"]["median"])
    low, high = sliced["equivalent_sample_size_interval"]
    assert low <= sliced["equivalent_sample_size"] <= high <= 4000
    assert found["ksd"]["ratio"] is None  # its floor is no yardstick
    assert found["rhat"]["verdict"] == found["seconds"]["verdict"] == "not applicable"
    assert "path" in found["rhat"]["reason"]


@pytest.mark.parametrize(
    ("spoil", "witness"),
    [
        (lambda x: x + 0.25 * SD, "mean_error"),
        (lambda x: BANANA.facts.mean + 0.8 * (x - BANANA.facts.mean), "sd_error"),
    ],
    ids=["shifted", "shrunk"],
)
def test_spoilt_draws_are_found(spoil, witness: str, exact: torch.Tensor) -> None:
    document = evaluate_samples(BANANA, spoil(exact))
    assert document["verdict"] == "distinguishable"
    assert rows(document)[witness]["verdict"] == "distinguishable"
    assert rows(document)["mmd2"]["equivalent_sample_size"] < 500


BIASED = {"sliced_w2", "w2", "mmd2", "kl_knn", "worst_coordinate", "correlation_error", "ks_marginal", "tail_error"}


@pytest.mark.parametrize("noise", [0.0, 1e-6])
@pytest.mark.parametrize("copies", [2, 1000])
def test_copied_rows_void_the_metrics_that_they_flatter(noise: float, copies: int, exact: torch.Tensor) -> None:
    """Also with noise far below every spread. The errors of exact moments, and the density's score, know no rows."""
    g = Generator().manual_seed(3)
    copied = BANANA.reference().draws[:copies] + noise * torch.randn(copies, 2, generator=g, dtype=torch.float64)
    document = evaluate_samples(BANANA, torch.cat([copied, exact[copies:]]).numpy().astype("float32"))
    voided = {m for m, row in rows(document).items() if "rows of the reference" in row["reason"]}
    assert voided == BIASED
    assert rows(document)["mmd2"]["reason"] == f"{copies} of 1000 samples are rows of the reference itself"
    for metric in ("mean_error", "sd_error", "ksd"):
        assert rows(document)[metric]["p_value"] is not None
    assert document["verdict"] == "not applicable"
    assert document["reason"] == "not judged by mmd2 and sliced_w2 and kl_knn or ks_marginal"


def test_exact_draws_are_no_copies() -> None:
    """One row is met in two of ten thousand sets of a thousand, two in one set never, however often a chain stays there."""
    g, reference = Generator().manual_seed(4), BANANA.reference()
    sets = BANANA.exact(500_000, g).view(500, 1000, 2)
    assert [copied_rows(x, reference) for x in sets] == [0] * 500
    met = torch.cat([sets[0], reference.draws[:1].expand(50, 2)])
    assert copied_rows(met, reference) == 0
    assert "mmd2" in compute_guarded(["mmd2"], met[None], Context(BANANA, reference))[0]
    assert copied_rows(torch.cat([met, reference.draws[1:2]]), reference) == 51


def test_no_floor_at_this_size_and_a_cost() -> None:
    document = evaluate_samples(BANANA, BANANA.exact(49, Generator().manual_seed(2)), Cost(1, 5000.0, 2.0))
    mmd2 = rows(document)["mmd2"]
    assert mmd2["value"] > 0
    assert mmd2["verdict"] == document["verdict"] == "not applicable"
    assert mmd2["reason"] == "floors are known at n = 50, 100, 200, 500, 1000, 2000 only"
    assert (document["n_judged"], document["judged_by"]) == (None, [])
    assert document["reason"] == "floors are known at n = 50, 100, 200, 500, 1000, 2000, not at 49"
    assert rows(document)["score_evaluations"]["value"] == 5000


@pytest.mark.parametrize(("n", "judged"), [(1500, 1000), (2500, 2000), (199, 100)])
def test_other_sizes_are_thinned_to_the_next_below(n: int, judged: int) -> None:
    """Every metric of the verdict is tested on the thinned samples; values are of all."""
    x = BANANA.exact(n, Generator().manual_seed(6))
    document = evaluate_samples(BANANA, x)
    assert document["n_judged"] == judged
    assert set(document["judged_by"]) == {*BIASED, "mean_error", "sd_error", "ksd"}
    assert rows(document)["w2"]["n_judged"] == min(judged, 1000)
    thinned = evaluate_samples(BANANA, x[torch.arange(judged) * n // judged])
    for metric in set(document["judged_by"]) - ({"w2"} if judged > 1000 else set()):
        assert rows(document)[metric]["p_value"] == rows(thinned)[metric]["p_value"]
    assert rows(document)["sd_error"]["value"] == pytest.approx(
        float((x.std(0) / SD - 1).square().mean().sqrt())
    )  # fmt: skip


def test_the_judged_value_over_its_floor_is_the_ratio_and_rows_agree_with_the_verdict(exact: torch.Tensor) -> None:
    """Of 800 draws 500 are judged; a metric alone is called distinguishable by its adjusted p."""
    moved = exact[:800] + torch.tensor([0.0, 0.2])
    document = evaluate_samples(BANANA, moved)
    tested = [row for row in document["metrics"] if row["floor"]]
    assert {row["n_judged"] for row in tested} == {500}
    for row in tested:
        if row["ratio"] is not None:
            assert row["judged"] / row["floor"]["median"] == pytest.approx(row["ratio"])
        assert row["p_adjusted"] >= row["p_value"]
        assert (row["verdict"] == "distinguishable") == (row["p_adjusted"] <= 0.05)
    assert (document["verdict"] == "distinguishable") == any(row["verdict"] == "distinguishable" for row in tested)


def test_two_thin_bands_are_no_banana() -> None:
    """Fifteen hundred points: between the sizes of floors, where the sliced distance alone sees little."""
    x = BANANA.exact(1500, Generator().manual_seed(7))
    ridge = x[:, 0].square() + 1
    off = x[:, 1] - ridge
    bands = torch.stack([x[:, 0], ridge + off.sign() * off.abs().mean()], 1)
    document = evaluate_samples(BANANA, bands)
    assert document["verdict"] == "distinguishable"
    assert rows(document)["kl_knn"]["value"] > 1


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("student-t", lambda x, density: x.abs().amax(1) < 5),
        ("banana", lambda x, density: density > density.quantile(0.01)),
    ],
)
def test_missing_tails_are_distinguishable(name: str, kept) -> None:
    """In most sets of a thousand: 95% and more here, and 13 of 16 the bar."""
    task, g = load_task(name), Generator().manual_seed(8)
    x = task.exact(20_000, g)
    x = x[kept(x, task.target([0], "cpu", torch.float64).log_density(x[None])[0])][:16_000]
    metrics = [m for m in verdict_metrics(task) if not m.startswith("w2")]
    found = [evaluate_samples(task, part, metrics=metrics)["verdict"] for part in x.split(1000)]
    assert found.count("distinguishable") >= 13


def test_repeated_rows_are_counted_once(exact: torch.Tensor) -> None:
    """Twenty copies of fifty draws are fifty draws."""
    document = evaluate_samples(BANANA, exact[:50].repeat(20, 1))
    assert (document["n"], document["n_judged"]) == (1000, 50)
    assert document["read"] == "50 of 1,000 rows are distinct, counted as 50 draws"
    assert "kl_knn" not in document["judged_by"]


def test_a_chain_has_an_equivalent_n_without_an_interval(exact: torch.Tensor) -> None:
    """An AR(0.9) chain's interval, made for independent draws, held its n over the autocorrelation time in 33-87%."""
    chain = exact[exact[:, 0].argsort()]  # neighbours in time are neighbours in place
    for x, independent in ((exact, True), (chain, False)):
        row = rows(evaluate_samples(BANANA, x))["mmd2"]
        assert row["equivalent_sample_size"] is not None
        assert (row["equivalent_sample_size_interval"] is not None) == independent
    assert "correlated" in row["reason"]


def test_serial_correlation_is_rarely_seen_in_independent_draws(exact: torch.Tensor) -> None:
    """A level of 0.1%, over all coordinates: at most 3 of 300 sets (p = 3e-4), in 100 dimensions too."""
    g = Generator().manual_seed(9)
    for dim in (1, 100):
        assert sum(serially_correlated(torch.randn(100, dim, generator=g) ** 3) for _ in range(300)) <= 3
    walk = torch.randn(300, 100, generator=g)
    walk[:, 40] = walk[:, 40].cumsum(0)
    assert serially_correlated(walk)


def test_a_task_object_with_a_built_in_name_is_refused(exact: torch.Tensor, tmp_path: Path) -> None:
    """Another density would be judged by the built-in's reference."""
    other = replace(load_task("x-shaped"), name="banana")
    with pytest.raises(InputError, match="'banana' is the name of a built-in task"):
        evaluate_samples(other, exact)
    with pytest.raises(InputError, match="give it a name of its own"):
        run(tasks=[other], algorithms=["ula"], replicates=1, tracking=False, out=tmp_path)


def test_wrong_input() -> None:
    with pytest.raises(ShapeError, match="banana wants samples of shape"):
        evaluate_samples(BANANA, [[1.0, 2.0, 3.0]] * 5)


@pytest.mark.parametrize(
    "convert", [lambda x: x + 1j, lambda x: x > 0, lambda x: x.astype("M8[s]"), lambda x: x.astype(str)]
)
def test_anything_but_real_numbers_is_refused(convert) -> None:
    """NumPy would turn dates and text into numbers, and drop imaginary parts with a warning."""
    x = BANANA.exact(50, Generator().manual_seed(3)).numpy()
    with pytest.raises(ShapeError, match="not real numbers"):
        pb.evaluate(convert(x), BANANA)


def test_chains_are_worth_less_than_independent_draws() -> None:
    """Autoregressive chains with correlation 0.9: (1 - 0.9) / (1 + 0.9) of their draws, within a third."""
    rng, draws = np.random.default_rng(1), [np.zeros((4, 2))]
    for _ in range(2000):
        draws.append(0.9 * draws[-1] + math.sqrt(1 - 0.81) * rng.normal(size=(4, 2)))
    worth = chain_diagnostics(torch.tensor(np.stack(draws[1:], 1)))["worth"]
    assert worth == pytest.approx(8000 * 0.1 / 1.9, rel=1 / 3)
