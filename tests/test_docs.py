"""Every block of code in the README and the documentation.

``python`` and ``bash`` blocks of a page run in order, in one empty folder (``slow`` where they take more than seconds);
``yaml`` blocks are suite files; the commands of all blocks, ``sh`` included, exist with their options; ``py`` and ``yml``
are well formed.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from ruamel.yaml import YAML
from test_readme import command_of

import parvibench as pb
from parvibench.core.errors import install_hint
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import parse_suite

ROOT = Path(__file__).parents[1]
GENERATED = ("reference", "reports", "_build")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.parts[len(ROOT.parts) + 1] not in GENERATED),
]
PAGES = [page for page in PAGES if page.is_file()]  # tests copied next to an installed wheel have none
#: Languages of blocks that run, and of those that are read only.
RUN, READ = ("python", "bash"), ("sh", "py", "stan", "yml", "yaml", "text")


class Block(NamedTuple):
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^(`{3,})([^\n]*)\n(.*?)^\1$", page.read_text("utf-8"), flags=re.S | re.M)
    return [Block(language.strip(), code) for _, language, code in found if not language.startswith("{")]


def runs(page: Path) -> bool:
    return any(block.language in RUN for block in blocks(page))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def commands(block: Block) -> list[list[str]]:
    """The words of every ``parvibench`` command of a block."""
    if block.language in ("yml", "yaml"):
        lines = re.findall(r"- run: (.*)", block.code)
    else:
        lines = re.sub(r"\\\n\s*", " ", block.code).splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.strip().startswith("parvibench ")]
    return [w[1:] for w in words]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_whether_it_runs(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= {*RUN, *READ}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_exists_with_its_options(page: Path) -> None:
    for words in (w for block in blocks(page) if block.language in ("bash", "sh", "yml") for w in commands(block)):
        rest = list(words)
        command = command_of(rest)
        assert not hasattr(command, "commands"), words
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        assert {w for w in rest if w.startswith("-")} <= {*known, "--help"}, words


def test_the_pages_hold_commands() -> None:
    if not PAGES:
        pytest.skip("the pages are not here")
    assert sum(len(commands(block)) for page in PAGES for block in blocks(page)) > 40


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_does_not_run_is_well_formed(page: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            assert expand(parse_suite(block.code.encode(), "mine.yaml"))
        elif block.language == "yml":
            assert YAML(typ="safe").load(block.code)
        elif block.language == "py":
            compile(block.code, name(page), "exec")
        elif block.language == "sh":
            subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)


@pytest.mark.ci
def test_suites_of_the_pages_run_and_lose_no_replicate(tmp_path: Path) -> None:
    """Their cells without data files, two replicates each: an example whose step size makes it blow up is no example."""
    suites = [b.code for page in PAGES for b in blocks(page) if b.language == "yaml" and "bnn-energy" not in b.code]
    for i, text in enumerate(suites):
        untuned = re.sub(r"^tune:.*\n", "", text, flags=re.M)  # a grid asks for a search first
        suite = parse_suite(untuned.encode(), "mine.yaml")
        tasks = [t for t in dict.fromkeys(task.name for task, _ in suite.pairs) if not t.startswith("bnn-")]
        ran = pb.run(suite, tasks=tasks, replicates=2, workers=0, out=tmp_path / str(i), tracking=False)
        assert [(c.task, c.label, c.reason) for c in ran.cells if c.status != "ok" or c.n_diverged] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if runs(p)], ids=name)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, tracking_uri: str) -> None:
    """As one program: a driver in Python that hands the ``bash`` blocks to a shell with ``-e``."""
    steps = [
        block.code if block.language == "python" else f"subprocess.run(['bash', '-euc', {block.code!r}], check=True)\n"
        for block in blocks(page)
        if block.language in RUN
    ]
    (tmp_path / "page.py").write_text("import subprocess\n\n" + "\n".join(steps), "utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "MLFLOW_TRACKING_URI": tracking_uri, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


SOURCES = [p for folder in ("parvibench", "baselines", "tasks") for p in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("page", [*PAGES, ROOT / ".github" / "workflows" / "ci.yml"], ids=name)
def test_what_a_page_installs_can_be_installed_from_a_checkout(page: Path) -> None:
    """There is no release; ``.ci/wheel`` installs the package itself."""
    if not page.is_file():
        pytest.skip("the page is not here")
    assert installed_wrongly(page.read_text("utf-8")) == []


def test_hints_of_missing_libraries_name_extras_of_a_checkout() -> None:
    assert [(p, wrong) for p in SOURCES if (wrong := installed_wrongly(p.read_text("utf-8")))] == []
    hint = install_hint("numpyro")
    assert "pip install '.[numpyro]'" in hint
    assert installed_wrongly(hint) == []


def installed_wrongly(text: str) -> list[str]:
    """Lines that install a release of the package, and extras that it does not have."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = [n for found in re.findall(r"pip install '?\.\[([\w,]+)\]", text) for n in found.split(",")]
    return [*re.findall(r"pip install ['\"]?parvibench\S*", text), *(n for n in named if n not in extras)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """As a reader of the repository follows them; links to pages that the build writes are checked by the build."""
    links = [x for x in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8")) if "://" not in x]
    targets = [Path(os.path.normpath(page.parent / link)) for link in links]
    written = [ROOT / "docs" / folder for folder in GENERATED]
    assert [t for t in targets if not any(t.is_relative_to(w) for w in written) and not t.exists()] == []
