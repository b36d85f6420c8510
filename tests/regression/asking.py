"""One question of a check as a pytest test."""

from parvibench.checks.output import lines
from parvibench.checks.question import Question
from parvibench.checks.rounds import Plan, check

#: Every question may raise a false alarm with this probability; there are about three hundred of them.
PLAN = Plan(alpha=3e-6)
#: Fixed: the same commit, the same outcome.
SEED = 1


def assert_right(question: Question, seed: int = SEED) -> None:
    """Fail with the words of `parvibench check` where the question's answer is red."""
    findings = check([question], seed=seed, plan=PLAN)
    told = [line for line in lines(findings) if not line.startswith("  run again")]  # by pytest, not by the command
    assert findings.verdict == "pass", "\n".join(["", *told])
