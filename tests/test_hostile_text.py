"""Text of others on the terminal, and files that nest or name too much: one line, nothing obeyed."""

import ast
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from records import asked, make_record
from rich.text import Text

from parvibench import cli
from parvibench.cli import shared
from parvibench.cli.progress import progress
from parvibench.cli.shared import PlainConsole, new_table
from parvibench.core.errors import StoreError
from parvibench.core.result import Status
from parvibench.harness.store.files import sealed
from parvibench.harness.store.merging import merge
from parvibench.harness.store.store import RunRecord, Store

#: Clears the screen, sets the title, hides text, moves back; a lone surrogate; markup.
EVIL = "a\x1b[2J\x1b]0;t\x07b\x08\x9b1mc\ud800[red]d[/red]"
STARTED = "2026-01-01T00:00:00"


def obeyed(text: str) -> set[str]:
    """Characters that a terminal would obey, besides line ends."""
    return {c for c in text if not c.isprintable() and c not in "\n\t"}


@pytest.mark.parametrize("way", ["note", "answer", "table", "progress"])
def test_no_text_is_obeyed_by_a_terminal(
    way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = PlainConsole(width=200, color_system=None, force_terminal=False)
    monkeypatch.setattr(shared, "console", plain)
    monkeypatch.setattr(shared, "out_console", plain)
    if way == "note":
        shared.note(EVIL)
    elif way == "answer":
        shared.answer(EVIL)
    elif way == "progress":
        progress(plain).print(EVIL)
    else:
        table = new_table("label")
        table.add_row(EVIL)
        plain.print(table)
    out = capsys.readouterr().out
    assert obeyed(out) == set()
    assert r"a\x1b[2J\x1b]0;t" in out
    assert r"c\ud800[red]d[/red]" in out


def test_our_own_styles_still_pass(capsys: pytest.CaptureFixture[str]) -> None:
    PlainConsole(force_terminal=True, color_system="standard").print(Text("x", style="bold"))
    assert "\x1b[1mx\x1b[0m" in capsys.readouterr().out


def test_no_text_of_the_package_goes_through_markup() -> None:
    """Brackets of names, extras and reasons are text everywhere: markup is off on our consoles, and used nowhere."""
    calls = [
        (file.name, node, ast.unparse(node.func).rpartition(".")[2])
        for file in Path(shared.__file__).parents[1].rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
    ]
    plain = {"TextColumn", "SpinnerColumn", "RenderableColumn"}
    for name, node, called in calls:
        off = [key.value for key in node.keywords if key.arg == "markup"]
        assert called not in {"Console", "from_markup", "Panel", "Prompt", "Confirm", "rprint"}, (name, node.lineno)
        assert called not in plain or [ast.unparse(value) for value in off] == ["False"], (name, node.lineno)
        assert not any(ast.unparse(value) == "True" for value in off), (name, node.lineno)
    assert {called for _, _, called in calls} >= {"PlainConsole", "TextColumn"}


def test_brackets_are_shown_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    said = PlainConsole(width=200, force_terminal=True, color_system=None)
    said.print("pip install '.[ray]'", new_table("sd[raw]", "theta[bold]"))
    with progress(said) as show:
        show("prior of b[red]", 1, 2, ["now b[blue]"])
        said.print(show._render())
    out = capsys.readouterr().out
    assert [text for text in ("[ray]", "[raw]", "[bold]", "[red]", "[blue]") if text not in out] == []


def hostile_store(root: Path) -> Store:
    """A store whose only cell failed, with a label and a reason like no other."""
    store = Store(root)
    text = EVIL.replace("\ud800", "")
    record = make_record("evil", status=Status.CRASHED, reason=text, label=text)
    store.write_cell(record)
    store.write_run(RunRecord(id="r", suite={"name": "x"}, cells=[asked(record)], started=STARTED))
    return store


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["parvibench", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_a_report_of_a_hostile_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile_store(tmp_path / "store")
    assert call(monkeypatch, "report", "--out", str(tmp_path / "store")) == 1
    told = capsys.readouterr()
    assert obeyed(told.out + told.err) == set()


@pytest.mark.parametrize(
    "arguments", [("list", EVIL), ("show", "task", EVIL), ("run", f"--{EVIL}"), ("evaluate", "--task", "banana", EVIL)],
    ids=["choice", "name", "option", "file"],
)  # fmt: skip
def test_arguments_are_echoed_harmlessly(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["parvibench"])
    assert call(monkeypatch, *arguments) == 2
    told = capsys.readouterr()
    assert obeyed(told.out + told.err) == set()
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    "line", [r'name: "a\ud800"', r'description: "\e[2J"', r'"\e[2J": 1', r'algorithms: [{name: svgd, label: "\ud800"}]'],
    ids=["surrogate", "escape", "key", "label"],
)  # fmt: skip
def test_control_characters_and_lone_surrogates_in_suites_are_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "mine.yaml"
    kept = {"name": "name: a\n", "algorithms": "algorithms: [svgd]\n"}
    kept.pop(line.partition(":")[0], None)
    suite.write_text("tasks: [banana]\nbudget: {iterations: 5}\n" + "".join(kept.values()) + line + "\n")
    assert call(monkeypatch, "run", "--suite", str(suite), "--dry-run", "--out", str(tmp_path / "s")) == 2
    told = capsys.readouterr().err
    assert obeyed(told) == set()
    assert "mine.yaml" in told


RUN = {"format": 2, "id": "r", "suite": {"name": "x"}, "cells": [], "started": STARTED}


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000, b'{"format":' * 50_000, json.dumps(RUN | {"suite": {}}).encode(), json.dumps(RUN | {"suite": {"name": "x", "tasks": [3]}}).encode(),
        json.dumps(RUN | {"suite": {"name": "x", "description": "\ud800"}}).encode(), b"3", b"",
    ],
    ids=["deep list", "deep object", "empty suite", "odd suite", "surrogate", "number", "nothing"],
)  # fmt: skip
@pytest.mark.parametrize("command", ["report", "merge", "sync"])
def test_odd_run_records_give_one_line(
    content: bytes, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    (store / "runs").mkdir(parents=True)
    (store / "runs" / "r.json").write_bytes(content)
    where = (str(store), "--out", str(tmp_path / "whole")) if command == "merge" else ("--out", str(store))
    assert call(monkeypatch, command, *where) == 2
    told = capsys.readouterr().err
    assert told.startswith("parvibench: ")
    assert len(told.splitlines()) == 1


def test_a_run_of_no_cells_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a shard of more parts than cells."""
    Store(tmp_path).write_run(RunRecord(id="r", suite={"name": "x"}, cells=[], started=STARTED))
    assert call(monkeypatch, "report", "--out", str(tmp_path)) == 0
    assert capsys.readouterr().err == ""


def test_deep_settings_give_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = "svgd.step_size=" + "[" * 100_000
    command = ("run", "--task", "banana", "--algorithm", "svgd", "--out", str(tmp_path), "--set", deep)
    assert call(monkeypatch, *command) == 2
    assert capsys.readouterr().err == "parvibench: --set svgd.step_size: nested too deeply\n"


def test_a_merged_record_bears_its_folder_s_key(tmp_path: Path) -> None:
    """A whole, sealed record of another cell in the folder that the run names is no result of it."""
    store, record, other = Store(tmp_path / "part"), make_record("a"), make_record("b")
    store.write_cell(record)
    store.write_run(RunRecord(id="r", suite={"name": "x"}, cells=[asked(record)], started=STARTED))
    (store.folder(record.key) / "cell.json").write_bytes(sealed(other))
    with pytest.raises(StoreError, match="specification is that of another cell"):
        merge([store], Store(tmp_path / "whole"))
    assert not (tmp_path / "whole").exists()


def test_the_ui_of_a_busy_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile_store(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        assert call(monkeypatch, "ui", "--out", str(tmp_path), "--port", port, "--host", "127.0.0.1") == 2
    assert f"127.0.0.1:{port}: cannot listen there" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT])
def test_the_ui_forwards_signals(number: signal.Signals, tmp_path: Path) -> None:
    """To a server with a child of its own; nothing is left, and ending it is no failure; a kill ends all, too."""
    code = (
        "import sys; from parvibench.api.mirroring import serve_until_signal\n"
        'child = \'import subprocess, sys, time; subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"]);\'\n'
        "child += 'print(\"up\", flush=True); time.sleep(99)'\n"
        "import os; sys.exit(serve_until_signal([sys.executable, '-c', child], os.environ))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as ui:
        assert ui.stdout is not None
        assert ui.stdout.readline() == b"up\n"
        ui.send_signal(number)
        start = time.monotonic()
        assert ui.stdout.read() == b""  # until the last process that holds the pipe has ended
        assert time.monotonic() - start < 60  # the child alone would hold it for 99 s
    assert ui.returncode == (-number if number in (signal.SIGKILL, signal.SIGQUIT) else 0)
