"""An edition freezes versions; a run of anything else is refused and the difference named."""

import runpy
from pathlib import Path

import pytest

from parvibench.api.plan import Plan
from parvibench.board import editions
from parvibench.core.errors import InputError, UnknownNameError
from parvibench.harness.execution import Execution

freeze = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "edition.py"))["freeze"]


@pytest.fixture
def edition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> editions.Edition:
    """The edition 2020.01 of what is installed, in a folder that is read instead of the package's."""
    made = freeze("2020.01", tmp_path)
    (tmp_path / "2020.01.json").write_text(made.model_dump_json())
    monkeypatch.setattr(editions, "FOLDER", tmp_path)
    return made


def plan(name: str, settings: dict[str, dict[str, float]] | None = None, **options: object) -> Plan:
    execution = Execution.of(edition=name, workers=0, **options)
    return Plan.of("quick", tasks=["banana"], algorithms=["svgd", "mala"], settings=settings, execution=execution)


def test_what_is_installed_is_its_own_edition(edition: editions.Edition) -> None:
    assert plan("2020.01").cells(tuned=False)


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [("tasks", "banana", "task banana: version 7"), ("algorithms", "mala", "method mala: version 7"),
     ("metrics", "sliced_w2", "metric sliced_w2: version 7")],
)  # fmt: skip
def test_other_versions_are_named(edition: editions.Edition, tmp_path: Path, kind: str, name: str, line: str) -> None:
    changed = edition.model_copy(update={kind: getattr(edition, kind) | {name: 7}})
    (tmp_path / "2020.01.json").write_text(changed.model_dump_json())
    with pytest.raises(InputError, match=line):
        plan("2020.01").cells()


def test_other_suite_file_and_reference_are_named(edition: editions.Edition, tmp_path: Path) -> None:
    changed = edition.model_copy(
        update={"suites": edition.suites | {"quick": "0"}, "references": edition.references | {"banana": "0"}}
    )
    (tmp_path / "2020.01.json").write_text(changed.model_dump_json())
    with pytest.raises(InputError, match="suite quick: another file\n  reference of banana: another one"):
        plan("2020.01").cells()


@pytest.mark.parametrize(
    ("settings", "options", "line"),
    [(None, {"budget": {"iterations": 7}}, "budget iterations 7"), (None, {"replicates": 3}, "replicates 3; the board has 6"),
     (None, {"seed": 5}, "seed 5"), (None, {"start": "warm"}, "start warm"), (None, {"particles": 200}, "particles 200"),
     ({"mala": {"step_size": 0.123}}, {}, "settings .*0.123"), (None, {"match": "effective-step"}, "settings ")],
)  # fmt: skip
def test_other_budget_replicates_and_settings_are_named(
    edition: editions.Edition, settings: dict[str, dict[str, float]] | None, options: dict[str, object], line: str
) -> None:
    with pytest.raises(InputError, match=f"banana / [a-z]+: {line}"):
        plan("2020.01", settings, **options).cells()


def test_unknown_edition_and_bad_name(edition: editions.Edition, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no edition named '1999\.01'"):
        plan("1999.01").cells()
    with pytest.raises(InputError, match="year and month"):
        freeze("now", tmp_path)


def test_shipped_editions_are_readable() -> None:
    for name in editions.names():
        assert editions.load(name).edition == name
