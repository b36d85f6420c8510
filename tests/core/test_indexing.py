"""The index is what the classes say, and no results change under a version unnoticed."""

import copy
import json
from pathlib import Path

import indexing
import pytest

from parvibench.core.errors import InputError

Index = indexing.Index
STORED: Index = json.loads(indexing.INDEX.read_text("utf-8"))


@pytest.fixture(scope="module")
def current() -> Index:
    return indexing.scan(STORED)


def test_the_index_is_fresh(current: Index) -> None:
    assert indexing.render(current) == indexing.INDEX.read_text("utf-8"), "run: make index"
    assert indexing.described() == indexing.DESCRIBED.read_text("utf-8"), "run: make index"


def test_a_changed_source_asks_for_a_decision_on_every_version_it_may_concern(current: Index) -> None:
    old = copy.deepcopy(current)
    old["sources"]["baselines/sghmc.py"] = "other"
    names = ["sghmc", "uld", "sr-uld", "sr-sghmc"]  # uld and its kin start as sghmc does
    assert indexing.undecided(old, current) == {"baselines/sghmc.py": names}
    assert indexing.undecided(old, current, ["sr-*", "uld"]) == {"baselines/sghmc.py": ["sghmc"]}
    for name in names:
        old["algorithms"][name]["version"] = 0
    assert indexing.undecided(old, current) == {}


def test_what_is_new_needs_no_decision(current: Index) -> None:
    old = copy.deepcopy(current)
    del old["tasks"]["banana"], old["tasks"]["banana-ksivi-code"], old["sources"]["tasks/banana.py"]
    assert indexing.undecided(old, current) == {}
    assert list(indexing.scan(old)["tasks"])[-2:] == ["banana", "banana-ksivi-code"]


def test_main_refuses_and_tells_why(current: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = copy.deepcopy(current)
    old["sources"]["baselines/sivi.py"] = "other"
    file = tmp_path / "index.json"
    file.write_text(indexing.render(old))
    monkeypatch.setattr(indexing, "INDEX", file)
    monkeypatch.setattr(indexing, "scan", lambda order: current)
    with pytest.raises(SystemExit, match=r"(?s)baselines/sivi.py: sivi\n.*`version`.*make index KEEP=sivi"):
        indexing.main()
    assert json.loads(file.read_text()) == old
    indexing.main("sivi,no-other")
    assert json.loads(file.read_text()) == current


def test_sources_are_followed_to_shared_modules_but_not_to_interfaces() -> None:
    assert indexing.sources("parvibench.baselines.lapd_decay") == (
        "parvibench.baselines.lapd", "parvibench.baselines.lapd_decay", "parvibench.core.streams",
    )  # fmt: skip
    assert "parvibench.kernels.radial" in indexing.sources("parvibench.baselines.ksivi")  # `import radial`
    assert "parvibench.core.target" in indexing.sources("parvibench.tasks.bnn_variants")


PLAIN = 'class A:\n    citation = "B (1999)"\n    def f(self, x):\n        return x + 1\n'


@pytest.mark.parametrize(
    ("source", "same"),
    [
        (PLAIN.replace("class A:", 'class A:\n    """Words."""'), True),
        (PLAIN.replace("return x + 1", "# why\n        return (x\n    + 1)"), True),
        (PLAIN.replace("1999", "2000"), True),
        (PLAIN.replace("x + 1", "x + 2"), False),
        (PLAIN.replace("x + 1", "x + True"), False),
        (PLAIN + "    steady = None\n", False),
        (PLAIN.replace("return x + 1", "citation = x\n        return x + 1"), False),
    ],
)
def test_a_digest_is_of_what_a_program_does(source: str, same: bool) -> None:
    assert (indexing.digest(source) == indexing.digest(PLAIN)) == same


def test_two_homes_of_a_name_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_modules", lambda package: ["parvibench.tasks.banana"] * 2)
    with pytest.raises(InputError, match=r"'banana' is defined by both parvibench.tasks.banana:BANANA and"):
        indexing.scan()
