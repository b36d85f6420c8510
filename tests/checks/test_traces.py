"""Traces: steady under rounding and threads, moved by every change, stored and compared."""

import json
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from command_line import Run
from scipy import stats

from parvibench.baselines import psgld, sgld
from parvibench.checks import outcomes, output
from parvibench.checks.rounds import CheckResult
from parvibench.checks.traces import stored
from parvibench.checks.traces.catalogue import Subject, Taken, TraceWork, subjects, take, traces_of, unpacked
from parvibench.checks.traces.noise import Noise, uniform_numbers
from parvibench.checks.traces.stand_ins import ROWS, generated_data
from parvibench.checks.traces.trace import weighted
from parvibench.core import registry
from parvibench.core.errors import InputError, UnsupportedError
from parvibench.core.streams import Streams
from parvibench.data.loaders import load
from parvibench.kernels import gram
from parvibench.metrics import tails

PSGLD, SVGD = Subject("algorithm", "psgld"), Subject("algorithm", "svgd")
TAILS, BANANA = Subject("metric", "tail_error"), Subject("task", "banana")


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(*chosen: Subject) -> list[stored.MovedTrace]:
    """The traces of subjects that differ from the shipped ones, taken here."""
    return stored.compare(stored.load(), take(chosen, 0), chosen).moved


def test_uniform_numbers_are_the_high_bits_of_philox() -> None:
    """By Philox 4x64-10 written out (Salmon et al. 2011), counter 1 first, as NumPy begins."""
    mask, key = 2**64 - 1, [7, 0]
    counter = [1, 0, 0, 0]
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [(b >> 64) ^ counter[1] ^ key[0], b & mask, (a >> 64) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    expected = [(raw >> 11) * 2.0**-53 + 2.0**-54 for raw in counter]
    assert uniform_numbers(7, 4).tolist() == expected


def test_laws_of_the_noise() -> None:
    """Kolmogorov and Smirnov's tests at 1e-6, frequencies within five standard errors."""
    n, g = 4000, generator()
    with Noise():
        normal, uniform = torch.randn(n, generator=g), torch.rand(n, generator=g, dtype=torch.float64)
        exponential = torch.empty(n, dtype=torch.float64).exponential_(0.5, generator=g)
        drawn = torch.multinomial(torch.tensor([1.0, 2.0, 5.0]), n, replacement=True, generator=g)
        integers = torch.randint(-1, 3, (n,), generator=g)
        order = torch.randperm(50, generator=g)
        normals = torch.normal(torch.full((n,), 2.0), 3.0, generator=g)
    assert (normal.dtype, uniform.dtype, integers.dtype) == (torch.float32, torch.float64, torch.int64)
    for values, law in (
        (normal, stats.norm()),
        (uniform, stats.uniform()),
        (exponential, stats.expon(scale=2)),
        (normals, stats.norm(2, 3)),
    ):
        assert stats.kstest(values.numpy(), law.cdf).pvalue > 1e-6
    for counts, shares in ((drawn.bincount(), [1 / 8, 2 / 8, 5 / 8]), ((integers + 1).bincount(), [1 / 4] * 4)):
        p = np.array(shares)
        assert (np.abs(counts.numpy() / n - p) < 5 * np.sqrt(p * (1 - p) / n)).all()
    assert order.sort().values.tolist() == list(range(50))


def test_noise_follows_the_generator_and_leaves_pytorch_as_it_was() -> None:
    plain = torch.randn(3, generator=generator())
    with Noise():
        g = generator()
        first, second = torch.randn(3, generator=g), torch.randn(3, generator=g)
        again, other = torch.randn(3, generator=generator()), torch.randn(3, generator=generator(4))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.randn(3, generator=generator()), plain)


def test_a_random_function_without_a_formula_is_refused() -> None:
    with Noise(), pytest.raises(UnsupportedError, match="poisson"):
        torch.poisson(torch.ones(2), generator=generator())


def test_weights_see_signs_places_and_sizes() -> None:
    x = torch.tensor([0.5, -1.0, 2.0])
    others = [-x, x.flip(0), x * 1.001, torch.tensor([0.5, 1.0, 2.0])]
    assert len({round(weighted(v), 6) for v in (x, *others)}) == 5
    weight = [0.5 + k * (5**0.5 - 1) / 2 % 1 for k in (1, 2, 3)]
    assert weighted(x) == pytest.approx((0.65 * weight[0] + 0.7 * weight[1] + 2.6 * weight[2]) / 3)


def test_generated_tables_stand_in_for_a_while() -> None:
    with generated_data():
        table = load("bostonHousing")
        assert table.X.shape == (ROWS, 13)
        assert load("mushroom").X.shape == (ROWS, 117)
        assert set(np.unique(load("waveform").y)) == {0.0, 1.0}
    assert load.cache_info().currsize == 0


def test_the_shipped_traces_hold_here() -> None:
    chosen = (PSGLD, SVGD, TAILS, BANANA, Subject("task", "bnn-boston-sifg"), Subject("run", "banana/ula"))
    assert moved(*chosen) == []


def test_everything_registered_and_every_word_of_an_option_has_a_trace() -> None:
    names = stored.load()
    for subject in subjects():
        assert any(subject.owns(name) for name in names), subject
    for name, row in registry.algorithms().items():
        method = registry.load_method(name)
        if row.built_in and not row.library:
            assert {f"{name} preset={p}" for p in method.presets} <= names.keys()
            for field, info in method.settings_type.model_fields.items():
                words = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
                assert {f"{name} {field}={w}" for w in words if w != info.default} <= names.keys()
    assert not [name for name, trace in names.items() if "error" in trace.values]


def test_a_constant_of_a_sampler_moves_its_traces_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    step = psgld.PSGLD.step
    monkeypatch.setattr(
        psgld.PSGLD,
        "step",
        lambda self, problem, settings, *more: step(
            self, problem, settings.model_copy(update={"step_size": settings.step_size * 1.0001}), *more
        ),
    )
    found = moved(PSGLD, SVGD)
    assert {m.trace.split()[0] for m in found} == {"psgld"}
    first = next(m for m in found if m.trace == "psgld defaults")
    assert (first.label, first.index, first.modules) == ("step", 1, ("baselines.psgld",))
    assert first.value == pytest.approx(first.stored, rel=1e-2)


def test_a_constant_of_a_metric_moves_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "TAIL", 0.06)
    assert [m.trace for m in moved(TAILS, BANANA)] == ["metric tail_error"]


def test_reordered_sums_move_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    distances = gram.self_distances
    calls = []

    def reordered(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return distances(x.flip(-1))

    for module in (gram, __import__("parvibench.baselines.svgd", fromlist=["svgd"])):
        if hasattr(module, "self_distances"):
            monkeypatch.setattr(module, "self_distances", reordered)
    assert moved(SVGD) == []
    assert calls


def test_another_order_of_draws_is_a_change_and_no_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    normal = Streams.normal
    monkeypatch.setattr(Streams, "normal", lambda self, stream, shape, index=0: normal(self, stream, shape, index + 1))
    found = moved(Subject("algorithm", "sgld"))
    assert {m.label for m in found} == {"step"}
    ok = outcomes.Test("banana", "sgld", "mean[0]", "past", 0.0, (0.0, 0.0), 0.5, "ok", 20)
    assert CheckResult([ok], 1e-6, 1, traced=28, moved=found).verdict == "changed"


def test_an_error_moves_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no step")

    monkeypatch.setattr(sgld.SGLD, "step", broken)
    assert {(m.label, m.value) for m in moved(Subject("algorithm", "sgld"))} == {("error", "ZeroDivisionError")}


def taken(**values: list[float | str]) -> Taken:
    return Taken(dict(values), "baselines.ula kernels.gram")


@pytest.mark.parametrize(("now", "moves"), [(1 + 5e-8, False), (1 + 5e-7, True), ("nan", True)])
def test_what_counts_as_moved(now: float | str, moves: bool) -> None:
    before, after = (
        taken(step=[0.5, 1.0, 3.0], state=[1e-13]),
        taken(step=[0.5, now, 4.0 if moves else 3.0], state=[0.0]),
    )
    compared = stored.compare({"ula defaults": before}, {"ula defaults": after})
    assert bool(compared.moved) == moves
    for m in compared.moved:
        assert (m.where, m.stored, m.value, m.modules) == (
            "from step 1 on",
            1.0,
            now,
            ("baselines.ula", "kernels.gram"),
        )


def test_new_and_gone_traces() -> None:
    known = {"ula defaults": taken(step=[1.0]), "svgd defaults": taken(step=[1.0])}
    found = {"ula other": taken(step=[1.0])}
    of_ula = stored.compare(known, found, [Subject("algorithm", "ula")])
    assert (of_ula.new, [m.trace for m in of_ula.moved], of_ula.count) == (["ula other"], ["ula defaults"], 1)
    assert [m.trace for m in stored.compare(known, found).moved] == ["svgd defaults", "ula defaults"]
    assert CheckResult([], 1e-6, 1, new=of_ula.new, traced=1).verdict == "pass"


def test_a_regression_outweighs_a_change() -> None:
    move = stored.MovedTrace("ula defaults", "step", 2, 1.0, 2.0, ("baselines.ula",))
    bad = outcomes.Test("banana", "ula", "mean[0]", "past", 1.0, (0.5, 1.5), 0.0, "regression", 20)
    assert CheckResult([bad], 1e-6, 1, traced=1, moved=[move]).verdict == "regression"
    line = output.moved_line(move)
    assert line == "ula defaults: from step 2 on: 2, was 1"
    result = CheckResult([], 1e-6, 1, traced=1, moved=[move])
    assert line in output.markdown(result)
    assert line in output.junit(result)


def test_from_the_command_line(call: Run, tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    only = ("check", "--oracle", "traces", "--traces", str(file), "-a", "psgld", "--workers", "0")
    empty = call(*only)
    assert empty.code == 0
    assert "new: no baseline yet, run parvibench check --update: psgld defaults" in empty.err
    assert call(*only, "--update").code == 0
    lines = file.read_text().splitlines()
    names = sorted(t.name for t in traces_of(PSGLD))
    assert [line.partition(":")[0].strip('"') for line in lines[1:-1]] == names
    passed = call(*only)
    assert passed.code == 0
    assert passed.out.startswith(f"pass: {len(names)} traces: 0 moved")
    refused = call(*only, "--update")
    assert refused.code == 2
    assert "add --yes" in refused.err
    document = json.loads(file.read_text())
    step = document["traces"]["psgld mini-batches"]["values"]["step"]
    was, step[3] = step[3], 9.0
    file.write_text(json.dumps(document))
    changed = call(*only, "--json")
    assert changed.code == 1
    told = json.loads(changed.out)
    assert told["verdict"] == "changed"
    (only_one,) = told["traces"]["moved"]
    assert only_one == {
        "trace": "psgld mini-batches", "label": "step", "index": 3, "stored": 9.0, "value": was,
        "modules": ["baselines.psgld"], "where": "from step 3 on",
    }  # fmt: skip
    assert call(*only, "--update", "--yes").out.startswith("psgld mini-batches: from step 3 on")
    assert call(*only).code == 0


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    for text in ("[]", "{", '{"format": 0}'):
        file.write_text(text)
        with pytest.raises(InputError, match="no traces of format 1"):
            stored.load(file)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_all_shipped_traces_hold(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = unpacked(TraceWork(tuple(subjects())).run(lambda news: None))
    finally:
        torch.set_num_threads(before)
    compared = stored.compare(stored.load(), found)
    assert (compared.moved, compared.new) == ([], [])
