"""One test a question: its names, its messages, its expected failures, and what the check imports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import wrong_samplers

from parvibench.checks import output, parametrize
from parvibench.checks.rounds import check
from parvibench.checks.selection import outside_questions
from parvibench.core.errors import UnknownNameError

FOREIGN = f"""
import sys
sys.path.insert(0, {str(Path(wrong_samplers.__file__).parent)!r})
from wrong_samplers import Langevin, SharedNoise
from parvibench.checks import parametrize


@parametrize(Langevin, iterations=200, step_size=0.02)
def test_right(check):
    check()


@parametrize(SharedNoise, iterations=200, step_size=0.02, xfail={{"independence": "known", "contract on tilted": "hoped"}})
def test_shared(check):
    check()


class Broken(Langevin):
    name = "broken"

    def noise(self, streams, x):
        raise ValueError("no noise")


@parametrize(Broken, xfail={{"moments": "never excused"}})
def test_broken(check):
    check()
"""


def pytest_in(folder: Path, *words: str) -> str:
    (folder / "test_foreign.py").write_text(FOREIGN)
    call = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-rfxX", "--color=no", *words]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_a_question_is_a_test(tmp_path: Path) -> None:
    said = pytest_in(tmp_path, "-k", "moments or independence or contract or normaliser")
    assert "test_right[normaliser on tilted] SKIPPED" in said  # it has no `log_z`
    for name in ("moments on normal", "moments on skewed", "contract on tilted", "independence on normal"):
        assert f"test_right[{name}] PASSED" in said
    assert "test_shared[independence on normal] XFAIL (known)" in said
    assert "[XPASS(strict)] hoped" in said
    # An error in the sampler is not the failure that was expected.
    assert "test_broken[moments on normal] FAILED" in said
    assert "no noise" in said


def test_a_failure_explains_itself() -> None:
    asked = {param.id: param.values[0] for param in parametrize(wrong_samplers.SharedNoise).args[1]}  # type: ignore[attr-defined]
    with pytest.raises(pytest.fail.Exception) as failed:
        asked["independence on normal"]()
    said = " ".join(str(failed.value).split())
    for part in (
        "WRONG: shared-noise, independence on normal",
        "asked: Dependence between points and replicates on a symmetric target",
        "target: normal, a normal law of independent coordinates",
        "- correlation of the steps of different chains: 0.99",
        "replicates)",
        "usual causes: noise that chains or replicates share",
        "a right sampler fails this test with probability 0.0001 at most (p < ",
        "seed: 1",
    ):
        assert part in said


def test_pytest_and_the_command_name_the_same_causes() -> None:
    """And the same measured values: a test of the command keeps its question's hint, which the failure in pytest prints."""
    questions = outside_questions(wrong_samplers.SharedNoise(), {}, 500)
    (question,) = [q for q in questions if q.name == "independence on normal"]
    findings = check([question], seed=1)
    shown = (output.failure(question, findings, 1e-3), "\n".join(output.lines(findings)))
    causes = [" ".join(text.partition("usual causes: ")[2].split()) for text in shown]
    assert all(text.startswith(" ".join(question.hint.split())) for text in causes)
    measured = [re.findall(r"- correlation of the steps of different chains: \S+", text) for text in shown]
    assert measured[0] == measured[1] != []


def test_levels_share_the_family_s() -> None:
    levels = [param.values[0].args[1] for param in parametrize("mala", alpha=0.01).args[1]]  # type: ignore[attr-defined,union-attr]
    assert sum(levels) == pytest.approx(0.01)


def test_unknown_questions_are_named() -> None:
    with pytest.raises(UnknownNameError, match="invariance"):
        parametrize("mala", xfail={"invarience": "why"})


@pytest.mark.ci
@pytest.mark.parametrize(
    ("program", "more"),
    [
        (
            "from parvibench.api.check import check; check('parvibench.baselines.ula:ULA', iterations=10, tasks=['tilted'])",
            {"pandas", "sklearn", "ot", "pyarrow"},
        ),
        (
            "import numpy as np, parvibench as pb; pb.evaluate(np.random.default_rng(1).normal(size=(100, 2)), task='banana')",
            set(),
        ),
    ],
)
def test_a_light_install_is_enough(program: str, more: set[str]) -> None:
    """Neither a check nor an evaluation imports what reports, tracking, Pyro or clusters need."""
    heavy = {"mlflow", "pyro", "seaborn", "ray", "matplotlib", "arviz_stats", "jinja2"} | more
    call = f"import sys; {program}; assert not {heavy} & sys.modules.keys(), {heavy} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", call], check=True)
