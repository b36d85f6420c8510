"""Names: near ones are suggested, duplicates refused, listing stays light."""

from importlib.metadata import EntryPoint
from importlib.resources import files

import pytest

from parvibench.core import registry
from parvibench.core.errors import InputError

SAMPLER = files("parvibench.baselines") / "psgld.py"


def test_a_file_plug_in_loads_once() -> None:
    first, second = (registry.load_algorithm(f"{SAMPLER}:PSGLD") for _ in range(2))
    assert type(first) is type(second)


def test_an_anchor_is_a_method_but_no_algorithm() -> None:
    assert registry.load_method("exact").kind == "anchor"
    with pytest.raises(InputError, match="exact is an anchor"):
        registry.load_algorithm("exact")


@pytest.mark.parametrize("name", ["no.such.module:X", "nowhere.py:X", "parvibench.core.budget:Nothing"])
def test_plug_ins_that_cannot_be_loaded_are_told(name: str) -> None:
    with pytest.raises(InputError, match="cannot load") as caught:
        registry.load_algorithm(name)
    assert ("a file is named with its ending, file.py:CLASS" in str(caught.value)) == (name == "no.such.module:X")


def test_what_is_no_algorithm_is_refused() -> None:
    with pytest.raises(InputError, match="not a parvibench Algorithm"):
        registry.load_algorithm("parvibench.core.budget:Meter")


def test_two_owners_of_a_name_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("svgd", "other:SVGD", "parvibench.algorithms")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    registry.algorithms.cache_clear()
    try:
        with pytest.raises(InputError, match="both parvibench and an unknown package"):
            registry.algorithms()
    finally:
        registry.algorithms.cache_clear()
