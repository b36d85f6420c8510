"""What a release needs says the same everywhere: version, licence, Python versions, commands of CI."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]


def yaml(path: str) -> dict:
    file = ROOT / path
    if not file.is_file():  # tests copied next to an installed wheel
        pytest.skip(f"{path} is not here")
    return YAML(typ="safe").load(file.read_text("utf-8"))


@pytest.fixture
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_version_comes_from_pyproject(project: dict) -> None:
    """The program takes it from the installed package; nothing else states it but the citation."""
    assert version("parvibench") == project["version"]
    sources = [p for p in (ROOT / "parvibench").rglob("*.py") if f'"{project["version"]}"' in p.read_text("utf-8")]
    assert sources == []


def test_the_citation_is_valid_and_of_this_version(project: dict) -> None:
    """Required and typed keys of the Citation File Format 1.2.0, and the project's own facts."""
    citation = yaml("CITATION.cff")
    assert str(citation["cff-version"]) == "1.2.0"
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert set(citation) <= {
        "cff-version", "message", "title", "authors", "abstract", "type", "version", "license", "keywords", "doi", "url",
        "repository-code", "date-released", "identifiers", "references", "preferred-citation", "contact", "commit",
    }  # fmt: skip
    assert all(isinstance(a, dict) and ("name" in a or "family-names" in a) for a in citation["authors"])
    assert citation["type"] == "software"
    assert str(citation["version"]) == project["version"]
    assert citation["license"] == project["license"]
    assert [a["name"] for a in citation["authors"]] == [a["name"] for a in project["authors"]]


def test_the_changelog_has_this_version_on_top(project: dict) -> None:
    changelog = ROOT / "CHANGELOG.md"
    if not changelog.is_file():
        pytest.skip("the CHANGELOG is not here")
    first = re.search(r"^## (\S+)", changelog.read_text("utf-8"), flags=re.M)
    assert first
    assert first[1] == project["version"]


def test_the_workflow_runs_the_commands_of_ci_on_two_pythons(project: dict) -> None:
    jobs = yaml(".github/workflows/ci.yml")["jobs"]
    versions = jobs["tests"]["strategy"]["matrix"]["python"]
    assert len(versions) >= 2
    assert f">={versions[0]}" == project["requires-python"]
    run = {step["run"] for job in jobs.values() for step in job["steps"] if "run" in step}
    assert run == {".ci/run", ".ci/docs"}
    for script in run:
        assert (ROOT / script).stat().st_mode & 0o100, f"{script} cannot be executed"


def test_the_issue_forms_and_hooks_are_well_formed() -> None:
    for form in ("bug", "number", "addition", "submission"):
        content = yaml(f".github/ISSUE_TEMPLATE/{form}.yml")
        assert {"name", "description", "body"} <= set(content)
        fields = [field for field in content["body"] if field["type"] != "markdown"]
        assert len({field["id"] for field in fields}) == len(fields)
        assert all(field["attributes"]["label"] for field in fields)
    (hooks,) = (repo["hooks"] for repo in yaml(".pre-commit-config.yaml")["repos"])
    assert {"ruff-check", "ruff-format", "codespell"} <= {hook["id"] for hook in hooks}


@pytest.mark.parametrize("name", ["ci", "release", "submission"])
def test_actions_are_pinned_by_commit_and_no_text_of_others_is_code(name: str) -> None:
    jobs = yaml(f".github/workflows/{name}.yml")["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)
    assert not [step["run"] for step in steps if "${{" in step.get("run", "")]


def release(tag: str, changelog: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`.ci/release` with this changelog; the programs that it calls do nothing."""
    (folder / ".ci").mkdir(parents=True)
    for name in (".ci/release", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "CHANGELOG.md").write_text(changelog)
    for script in ("wheel", "fresh", "extras"):
        (folder / ".ci" / script).write_text("")
    for program in (folder / ".venv/bin/python", folder / "bin/make"):
        program.parent.mkdir(parents=True)
        program.symlink_to("/bin/true")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    words = [str(folder / ".ci/release"), tag, "dist"]
    return subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=False)


def test_a_tag_releases_its_version_with_its_section_of_the_changelog(project: dict, tmp_path: Path) -> None:
    if not (ROOT / ".ci").is_dir():
        pytest.skip("the scripts of CI are not here")
    version, old = project["version"], "## 0.0.1 (2020-01-01)\n\n- Old.\n"
    dated = f"# Changelog\n\n## {version} (2026-12-01)\n\n- One thing.\n\n{old}"
    for tag, changelog, refusal in (
        ("v9.9.9", dated, "is not version"),
        (f"v{version}", f"# Changelog\n\n{old}", "no section"),
        (f"v{version}", dated.replace("2026-12-01", "unreleased"), "no section"),
    ):
        done = release(tag, changelog, tmp_path / str(len(list(tmp_path.iterdir()))))
        assert done.returncode == 2
        assert refusal in done.stderr
    done = release(f"v{version}", dated, tmp_path / "dated")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dated/dist/notes.md").read_text().split() == ["-", "One", "thing."]
