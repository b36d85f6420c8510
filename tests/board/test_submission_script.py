"""From an issue's text to a proposed change: `.ci/submission` with a local repository and stand-ins for `gh` and `curl`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/submission"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SCRIPT.is_file(), reason="the scripts of CI are not here")]
BODY = "Please add\nhttps://github.com/user-attachments/files/123/theirs.zip\n$(touch planted) `touch planted`"


@pytest.fixture
def repository(folder: Path) -> Path:
    """A clone with the board and a bare remote; programs that write down how they are called."""
    programs = folder / "programs"
    programs.mkdir()
    record = f'echo "$@" >>{folder}/$(basename "$0").txt'
    # The file after --body-file; the archive goes where --output says.
    (programs / "gh").write_text(
        f"#!/bin/bash\n{record}\nwhile [ $# -gt 1 ]; do [[ $1 = --body-file ]] && cat $2 >>{folder}/gh.txt; shift; done; true\n"
    )
    (programs / "curl").write_text(
        f"#!/bin/bash\n{record}\nwhile [ $# -gt 1 ]; do [[ $1 = --output ]] && cp {folder}/theirs.zip $2; shift; done; true\n"
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    clone = folder / "clone"
    (clone / ".ci").mkdir(parents=True)
    shutil.copy(SCRIPT, clone / ".ci/submission")
    shutil.copytree(folder / "reports", clone / "reports")
    for words in (
        ["init", "-q", "-b", "main"], ["add", "."], ["-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "Board"],
        ["init", "-q", "--bare", str(folder / "remote.git")], ["remote", "add", "origin", str(folder / "remote.git")],
    ):  # fmt: skip
        subprocess.run(["git", *words], cwd=clone, check=True)
    return clone


def submitted(repository: Path, body: str) -> str:
    """What the script says to the issue."""
    folder = repository.parent
    path = f"{folder / 'programs'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "BODY": body, "NUMBER": "7"}
    subprocess.run([str(repository / ".ci/submission")], cwd=repository, env=environment, check=True)
    return (folder / "gh.txt").read_text()


def test_accepted_archive_becomes_a_branch_of_the_remote(repository: Path) -> None:
    said = submitted(repository, BODY)
    assert "1 verified, 1 unverified" in said
    assert "pr create --head submission-" in said
    branches = subprocess.run(
        ["git", "branch", "-a"], cwd=repository.parent / "remote.git", capture_output=True, text=True, check=True
    )
    assert "submission-" in branches.stdout
    fetched = (repository.parent / "curl.txt").read_text().split()[-1]
    assert fetched == "https://github.com/user-attachments/files/123/theirs.zip"
    assert not list(repository.rglob("planted"))


def test_refused_archive_and_missing_one_are_answered(repository: Path) -> None:
    (repository.parent / "theirs.zip").write_text("nothing")
    assert "no archive of results" in submitted(repository, BODY)
    assert "No attached zip file" in submitted(repository, "https://example.org/evil.zip")
