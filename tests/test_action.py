"""The GitHub Action: its steps, run in a clone of another repository as a runner would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
SAMPLER = '''
import math

import parvibench as pb


@pb.sampler
def walk(problem, x0, generator, *, step_size: float = 0.03):
    """Unadjusted Langevin steps."""
    x = x0
    while True:
        noise = x.new_empty(x.shape).normal_(generator=generator)
        x = x + SIGN * step_size * problem.score(x) + math.sqrt(2 * step_size) * noise
        yield x
'''

pytestmark = pytest.mark.skipif(not (ROOT / "action.yml").is_file(), reason="needs a checkout")


def action() -> dict:
    return YAML(typ="safe").load((ROOT / "action.yml").read_text())


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clean clone of a repository with a sampler."""
    origin = tmp_path / "origin"
    origin.mkdir()
    (origin / "mine.py").write_text(SAMPLER.replace("SIGN", "1"))
    git(origin, "init", "--quiet", "--initial-branch=trunk")
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "-m", "A sampler")
    git(tmp_path, "clone", "--quiet", origin.as_uri(), "clone")
    return tmp_path / "clone"


def perform(clone: Path, only: tuple[str, ...], bins: Path, **given: str) -> tuple[int, str]:
    """Exit code of the first step that fails, or 0, and the summary."""
    described = action()
    values = {f"inputs.{name}": given.get(name, spec.get("default", "")) for name, spec in described["inputs"].items()}
    values["github.event.repository.default_branch"] = "trunk"
    summary, code = clone.parent / "summary.md", 0
    summary.unlink(missing_ok=True)
    for step in described["runs"]["steps"]:
        if step.get("name") not in only:
            continue
        env = {k: re.sub(r"\$\{\{ (\S+) \}\}", lambda m: values[m[1]], v) for k, v in step["env"].items()}
        env |= {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ACTION_PATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        env |= {"PATH": f"{bins}:{os.environ['PATH']}", "HOME": str(clone.parent)}
        # As a runner calls bash.
        call = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(call, cwd=clone, env={**os.environ, **env}, capture_output=True, text=True)
        code = done.returncode
        if code:
            print(done.stdout, done.stderr)
            break
    return code, summary.read_text() if summary.is_file() else ""


def test_actions_are_pinned_by_commit() -> None:
    """Those of the workflows, too: a tag can be moved."""
    files = [ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.y*ml")]
    used = [u for file in files for u in re.findall(r"uses:\s*(\S+)", file.read_text())]
    assert len(used) > len(files)
    assert [u for u in used if not u.startswith("./") and not re.search(r"@[0-9a-f]{40}$", u)] == []


def test_it_is_composite() -> None:
    steps = action()["runs"]["steps"]
    assert action()["runs"]["using"] == "composite"
    # What a caller writes reaches the shell in variables alone.
    assert not [step for step in steps if "${{" in step.get("run", "")]


CHECK = ("Baseline of the default branch", "Check")


@pytest.mark.slow
def test_right_and_wrong_samplers(clone: Path) -> None:
    options = {"sampler": "mine.py:walk", "options": "-t tilted --iterations 80 --workers 0"}
    code, summary = perform(clone, CHECK, Path(sys.executable).parent, **options)
    assert code == 0
    assert summary.startswith("## parvibench check\n\n````text\n")
    assert "pass: 17 tests" in summary
    (clone / "mine.py").write_text(SAMPLER.replace("SIGN", "0.3"))
    code, summary = perform(clone, CHECK, Path(sys.executable).parent, **options)
    assert code == 1
    assert re.search(r"WRONG: walk on tilted[^`]*should be", summary)


def test_a_baseline_that_is_not_there_is_named(clone: Path) -> None:
    code, _ = perform(clone, CHECK, Path(sys.executable).parent, sampler="mine.py:walk", baseline="b.json")
    assert code == 2


@pytest.mark.slow
def test_all_steps_in_a_clean_environment_against_a_baseline(clone: Path) -> None:
    venv = clone.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    options = {"sampler": "mine.py:walk", "options": "-t banana --iterations 50 --workers 0", "baseline": "b.json"}
    assert perform(clone, ("Install",), venv / "bin")[0] == 0
    absent = ("mlflow", "pyro", "seaborn", "matplotlib", "ray")
    found = [m for m in absent if list(venv.glob(f"lib/python*/site-packages/{m}"))]
    assert not found
    words = ["check", "-a", "mine.py:walk", *options["options"].split(), "--update", "--baseline", "b.json"]
    subprocess.run([venv / "bin" / "parvibench", *words], cwd=clone, check=True)
    git(clone, "add", "b.json")
    git(clone, "commit", "--quiet", "-m", "A baseline")
    git(clone, "push", "--quiet", "origin", "HEAD:refs/heads/next")
    code, summary = perform(clone, CHECK, venv / "bin", **options)
    assert code == 0, summary
    assert "Compared with b.json of this branch, which changes it." in summary
    git(clone.parent / "origin", "merge", "--quiet", "--ff-only", "next")
    (clone / "mine.py").write_text(SAMPLER.replace("SIGN", "0.5"))
    code, summary = perform(clone, CHECK, venv / "bin", **options)
    assert code == 1
    assert "Compared with b.json of trunk." in summary
    assert "walk on banana" in summary
