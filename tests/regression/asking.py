"""One question of a check as a pytest test."""

from parvibench.checks.output import lines
from parvibench.checks.question import Question
from parvibench.checks.rounds import Plan, check

#: Probability of a false alarm of one statistic: about eight thousand of them share an error rate of one in a thousand.
LEVEL = 1.2e-7
#: Fixed: the same commit, the same outcome.
SEED = 1


def assert_right(question: Question, seed: int = SEED) -> None:
    """Fail with the words of `parvibench check` where the question's answer is red."""
    plan = Plan(alpha=LEVEL * len(question.expected()))
    findings = check([question], seed=seed, plan=plan)
    told = [line for line in lines(findings) if not line.startswith("  run again")]  # by pytest, not by the command
    assert findings.verdict == "pass", "\n".join(["", *told])
