"""A submission enters the board with its marks, a forged one does not, and a plug-in runs in a sandbox only."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parvibench.api import stores as api
from parvibench.api.run import run
from parvibench.board.accepting import assemble
from parvibench.core.errors import InputError, RefusedError
from parvibench.harness.isolation import sandboxed
from parvibench.harness.store.store import Store


def has_sandbox() -> bool:
    """Whether bubblewrap works here."""
    words = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(words, check=False).returncode == 0


needs_sandbox = pytest.mark.skipif(not has_sandbox(), reason="no bubblewrap, or no user namespaces")


def test_rows_enter_the_page_with_their_marks(folder: Path) -> None:
    accepted = api.accept("theirs.zip", workers=0, replicates=6)
    assert accepted.marks == {("banana", "mala"): "verified", ("banana", "mine"): "unverified"}
    page = Path("reports/quick/index.html").read_text()
    assert "mine (Theirs &lt;b&gt;)" in page
    assert "(Theirs <b>)" not in page
    outcome = json.loads(accepted.files[1].read_text())
    assert outcome["contact"] == "them@example.org"
    with pytest.raises(InputError, match="on the board already"):
        api.accept("theirs.zip", workers=0)
    assert api.write_board("reports/quick").read_text() == page


def test_forged_cell_is_named(folder: Path) -> None:
    store = Store("theirs")
    record = next(r for c in store.run().cells if (r := store.find(c.key)) is not None and r.label == "mala")
    curve = store.curve(record.key)
    curve.loc[curve["metric"] == "sliced_w2", "value"] *= 0.7
    values = record.values | {"sliced_w2": [0.7 * v for v in record.values["sliced_w2"] if v is not None]}
    store.write_cell(record.model_copy(update={"values": values}), curve, store.samples(record.key))
    store.write_run(store.run())
    api.submit("theirs", "forged.zip", name="forged")
    with pytest.raises(RefusedError, match="banana / mala"):
        api.accept("forged.zip", workers=0, replicates=12)
    assert not list(Path("reports/quick").rglob("submissions/*"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"replicates": 2}, "replicates 2; the board has 6"), ({"seed": 3}, "seed 3; the board has 0"),
     ({"budget": {"iterations": 50}}, "budget iterations 50"),
     pytest.param({"tasks": ["banana", "funnel-10d"]}, "no task of this board", marks=pytest.mark.ci)],
)  # fmt: skip
def test_other_terms_are_refused(folder: Path, options: dict[str, object], reason: str) -> None:
    tasks = options.pop("tasks", ["banana"])
    given = {"mala": {"step_size": 0.05}}
    run("quick", tasks=tasks, algorithms=["mala"], settings=given, workers=0, tracking=False, out="other", **options)  # type: ignore[arg-type]
    api.submit("other", "other.zip", name="other")
    with pytest.raises(InputError, match=reason):
        api.accept("other.zip", workers=0)


def test_board_without_results_and_unknown_suite_are_named(folder: Path) -> None:
    Path("reports/quick/results.zip").unlink()
    with pytest.raises(InputError, match="no board of suite 'quick'"):
        api.accept("theirs.zip", workers=0)
    with pytest.raises(InputError, match=r"no results\.zip"):
        assemble(Path("reports/quick"), folder / "assembled")


def test_forged_submission_exits_1_and_another_file_2(folder: Path, call: Callable[..., object]) -> None:
    (folder / "bad.zip").write_text("nothing")
    answer = call("accept", str(folder / "bad.zip"))
    assert answer.code == 2  # type: ignore[attr-defined]
    assert "no archive of results" in answer.err  # type: ignore[attr-defined]


@needs_sandbox
@pytest.mark.slow
def test_plugin_is_verified_in_the_sandbox(folder: Path) -> None:
    accepted = api.accept("theirs.zip", workers=0, replicates=12, run_plugins=True)
    assert accepted.marks == {("banana", "mala"): "verified", ("banana", "mine"): "verified"}


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', PORT), 2)", "OSError"),
        ("open('/usr/planted', 'w')", "Read-only file system"),
        ("import os; print(os.listdir('SECRETS'))", "No such file"),
        ("import os; os.kill(PID, 0)", "No such process"),
        ("import os; assert 'TOKEN' not in os.environ; print('fine')", "fine"),
        ("open('/sandbox/result', 'w').write('x'); print('fine')", "fine"),
    ],
)
def test_sandbox_keeps_a_program_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, seen: str) -> None:
    import os
    import socket

    monkeypatch.setenv("TOKEN", "secret")
    secrets, work = tmp_path / "secrets", tmp_path / "work"
    secrets.mkdir()
    (work / "plugins").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = (
            code.replace("PORT", str(server.getsockname()[1]))
            .replace("SECRETS", str(secrets))
            .replace("PID", str(os.getpid()))
        )
        guarded = f"try:\n  {text}\nexcept OSError as e:\n  print('OSError', e)"
        command = sandboxed([sys.executable, "-S", "-c", guarded], work)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert seen in done.stdout, done


@pytest.mark.ci
@needs_sandbox
def test_change_is_committed_on_a_branch(folder: Path) -> None:
    remote = folder.parent / "remote.git"
    git = ["git", "-c", "user.name=Board", "-c", "user.email=board@example.org"]
    for words in (["init", "-q", "-b", "main"], ["config", "user.name", "Board"], ["config", "user.email", "board@example.org"],
                  ["add", "reports"], ["commit", "-qm", "Board"]):  # fmt: skip
        subprocess.run([*git, *words], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    accepted = api.accept("theirs.zip", workers=0, replicates=6)
    branch = api.commit(accepted, "reports")
    subprocess.run(["git", "push", "-q", str(remote), branch], check=True)
    listed = subprocess.run(
        ["git", "-C", str(remote), "diff", "--name-only", f"{branch}~", branch], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    assert f"reports/quick/submissions/{accepted.manifest.id}.zip" in listed
    assert "reports/quick/index.html" in listed
    assert "mine.py" not in listed
