"""Traces are moved by every change, by no reordering, and are stored and compared as they should be."""

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args, get_origin

import accept_traces
import pytest
import torch

from parvibench.baselines import psgld, sgld
from parvibench.core import registry
from parvibench.core.streams import Streams
from parvibench.kernels import gram

from . import stored
from .catalogue import Subject, subject_of, subjects, surroundings, traces_of
from .trace import taken, weighted

PSGLD, SVGD, SGLD = (Subject("algorithm", name) for name in ("psgld", "svgd", "sgld"))


def moved(*chosen: Subject) -> dict[str, list[stored.Moved]]:
    """What has moved in the traces of subjects, taken here."""
    known = stored.load()
    with surroundings():
        found = {t.name: stored.differences(known[t.name], taken(t)) for s in chosen for t in traces_of(s).values()}
    return {name: differences for name, differences in found.items() if differences}


def test_weights_see_signs_places_and_sizes() -> None:
    x = torch.tensor([0.5, -1.0, 2.0])
    others = [-x, x.flip(0), x * 1.001, torch.tensor([0.5, 1.0, 2.0])]
    assert len({round(weighted(v), 6) for v in (x, *others)}) == 5
    weight = [0.5 + k * (5**0.5 - 1) / 2 % 1 for k in (1, 2, 3)]
    assert weighted(x) == pytest.approx((0.65 * weight[0] + 0.7 * weight[1] + 2.6 * weight[2]) / 3)


def test_everything_registered_and_every_word_of_an_option_has_a_trace() -> None:
    names = stored.load()
    assert {subject_of(name) for name in names} == set(subjects())
    for name, row in registry.algorithms().items():
        method = registry.load_method(name)
        if row.built_in and not row.library:
            assert {f"{name} preset={p}" for p in method.presets} <= names.keys()
            for field, info in method.settings_type.model_fields.items():
                words = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
                assert {f"{name} {field}={w}" for w in words if w != info.default} <= names.keys()


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
    assert {name.split()[0] for name in found} == {"psgld"}
    first = found["psgld defaults"][0]
    assert (first.label, first.index, first.where) == ("step", 1, "step 1")
    assert first.value == pytest.approx(first.stored, rel=1e-2)


def test_reordered_sums_move_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    distances = gram.self_distances
    calls = []

    def reordered(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return distances(x.flip(-1))

    for module in (gram, import_module("parvibench.baselines.svgd")):
        if hasattr(module, "self_distances"):
            monkeypatch.setattr(module, "self_distances", reordered)
    assert moved(SVGD) == {}
    assert calls


def test_another_order_of_draws_moves_a_sampler_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    normal = Streams.normal
    monkeypatch.setattr(Streams, "normal", lambda self, stream, shape, index=0: normal(self, stream, shape, index + 1))
    found = moved(SGLD)
    assert len(found) > 10
    assert {differences[0].label for differences in found.values()} == {"step"}


@pytest.mark.parametrize(("now", "moves"), [(1 + 5e-8, False), (1 + 5e-7, True), ("nan", True), (-1.0, True)])
def test_what_counts_as_moved(now: float | str, moves: bool) -> None:
    after = {"step": [0.5, now, 4.0 if moves else 3.0], "state": [0.0]}
    found = stored.differences({"step": [0.5, 1.0, 3.0], "state": [1e-13]}, after)
    expected = [("step", 1, 1.0, now), ("step", 2, 3.0, 4.0)] if moves else []
    assert found == expected


def test_values_that_came_and_went_have_moved() -> None:
    assert stored.differences({"a": [1.0, 2.0]}, {"a": [1.0], "b": ["x"]}) == [("a", 1, 2.0, None), ("b", 0, None, "x")]
    assert stored.differences({"info": []}, {}) == []


def test_a_report_names_every_number_that_has_moved() -> None:
    before, after = {"step": [1.0, 0.61362041, 2.0], "info": ["up"]}, {"step": [1.0, 0.6458071, 2.5], "info": ["down"]}
    assert stored.report("mala later", stored.differences(before, after)).splitlines() == [
        "mala later: from step 1 on, 3 values have moved",
        "  step 1: 0.6458071, was 0.61362041",
        "  step 2: 2.5, was 2",
        "  info [0]: 'down', was 'up'",
    ]


@pytest.fixture
def accept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Runs `make traces` on a copy of the file."""
    file = tmp_path / "traces.json"
    file.write_bytes(stored.FILE.read_bytes())
    monkeypatch.setattr(stored, "FILE", file)
    threads = torch.get_num_threads()

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["accept_traces.py", *arguments])
        return accept_traces.main()

    yield run
    torch.set_num_threads(threads)


def test_accepting_writes_the_lines_that_moved_and_no_others(
    accept: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    original = stored.FILE.read_text()
    traces = stored.load()
    was = traces["psgld mini-batches"]["step"][3]
    traces["psgld mini-batches"]["step"][3] = 9.0
    traces["svgd defaults"]["step"][3] = 9.0
    traces["psgld with=nothing"] = traces.pop("psgld later")
    stored.write(stored.FILE, traces)
    assert accept("psgld") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:4] == [
        "psgld mini-batches: from step 3 on, 1 value has moved",
        f"  step 3: {was:.9g}, was 9",
        "psgld later: new",
        "psgld with=nothing: gone",
    ]
    assert "1 moved, 1 new, 1 gone" in told[-1]
    now = stored.FILE.read_text().splitlines()
    assert [line.split('"')[1] for line in original.splitlines() if line not in now] == ["svgd defaults"]
    assert list(json.loads("".join(now))) == list(json.loads(original))
    assert accept("svgd def*") == 0
    assert stored.FILE.read_text() == original


def test_a_pattern_that_fits_no_trace_is_refused(
    accept: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert accept("swgd") == 2
    assert "no trace is named 'swgd'" in capsys.readouterr().err


def test_a_trace_that_cannot_be_taken_stores_nothing(
    accept: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no step")

    monkeypatch.setattr(sgld.SGLD, "step", broken)
    before = stored.FILE.read_bytes()
    with pytest.raises(ZeroDivisionError) as caught:
        accept("sgld")
    assert "in the trace 'sgld defaults'; nothing was stored" in caught.value.__notes__
    assert stored.FILE.read_bytes() == before
