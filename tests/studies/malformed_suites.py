"""Malformed suite files through the command line: exit 2, the file and the place named, no traceback, quickly.

``python tests/studies/malformed_suites.py --files 300``
"""

import argparse
import contextlib
import io
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from parvibench import cli
from parvibench.cli import shared

GOOD: dict[str, Any] = {
    "name": "mine",
    "tasks": ["banana", {"name": "multimodal", "splits": 3}],
    "algorithms": ["svgd", {"name": "sgld", "label": "slow", "settings": {"step_size": 0.1}}],
    "replicates": 2,
    "seed": 1,
    "budget": {"iterations": 5},
    "particles": 10,
    "samples": 10,
    "metrics": ["ksd"],
    "dtype": "float32",
    "tune": {"step_size": [0.001, 1.0], "points": 3},
}
WRONG = {
    "name": st.sampled_from(["", "a b", "../x", 3, None, ["x"], "x" * 65]),
    "tasks": st.sampled_from([[], "", 3, None, [3], [[]], [{"nam": "banana"}], ["bananna"], ["banana", "banana"], {"name": 1}]),
    "algorithms": st.sampled_from(
        [[], 5, None, ["svdg"], [{"name": "svgd", "settings": {"stepsize": 1}}], [{"name": "svgd", "settings": 4}],
         [{"name": "svgd", "settings": {"step_size": -1}}], ["svgd", "svgd"], [{"label": "x"}],
         [{"name": "svgd", "label": "x" * 81}], [{"name": "svgd", "label": "\x1b[2J"}], [{"name": "svgd", "label": "\ud800"}],
         [{"name": "svgd", "settings": {"\x9b1m": 1}}], [{"name": "os:system"}], [{"name": "/etc/passwd:x"}]]
    ),
    "replicates": st.one_of(st.integers(max_value=0), st.integers(min_value=100_001), st.floats(), st.text(max_size=5), st.none()),
    "seed": st.one_of(st.integers(max_value=-1), st.integers(min_value=2**63), st.floats(), st.text(max_size=5), st.none()),
    "budget": st.one_of(
        st.none(), st.just({}), st.integers(), st.lists(st.integers(), max_size=2),
        st.dictionaries(st.sampled_from(["iterations", "seconds", "steps", "score_evaluations"]),
                        st.one_of(st.integers(max_value=0), st.text(max_size=3), st.just(float("nan")), st.none()),
                        min_size=1, max_size=2),
    ),
    "particles": st.one_of(st.integers(max_value=0), st.integers(min_value=1_000_001), st.floats(), st.text(max_size=5)),
    "samples": st.one_of(st.integers(max_value=1), st.integers(min_value=11), st.floats(), st.text(max_size=5)),
    "metrics": st.sampled_from(["ksd ", ["sliced_w3"], [1], {"ksd": 1}, 7]),
    "dtype": st.sampled_from(["float16", "double", 64, None, ["float32"]]),
    "tune": st.sampled_from([3, {}, {"step_size": [1, 0.1]}, {"step_size": [0, 1]}, {"step_size": 3}, {"steps": 2}]),
}  # fmt: skip
#: Texts no parser should trip over, after the good file's lines.
TEXTS = st.sampled_from(
    [
        "\treplicates: 3\n", "replicates: 3\nreplicates: 4\n", "x: !!python/object/apply:os.system ['true']\n",
        "x: !!python/name:os.system\n", "x: !include /etc/passwd\n", "a: &a [*a, *a]\n", "x: *nowhere\n", "? [a, b]\n: c\n",
        "x: 'unclosed\n", "x: \"\\ud800\"\n", "description: \"\\e]0;t\\a\"\n", "\"\\e[2J\": 1\n", "x: {a: [b\n", "- a\n", "%YAML 9.9\n---\n", "---\nname: b\n---\nname: c\n", "x: |\n  \x00\n",
        "1: 2\n", "null: 3\n", "yes: no\n", "x: 2001-01-01\n", "x: " + "9" * 5000 + "\n", "x: " + "[" * 2000 + "\n", "<<: {name: z}\nqq: 1\n",
        "\n".join(["b0: &b0 [x, x, x, x, x, x, x, x, x]"] + [f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, 9)]) + "\n",
    ]
)  # fmt: skip


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A suite file with something wrong in it."""
    kind = draw(st.sampled_from(["value", "value", "value", "key", "text", "bytes", "missing"]))
    tree = dict(GOOD)
    if kind == "bytes":
        return draw(st.binary(min_size=1, max_size=300)) + b"\xff"
    if kind == "text":
        return json_yaml(tree).encode() + draw(TEXTS).encode("utf-8", "surrogatepass")
    if kind == "missing":
        del tree[draw(st.sampled_from(["name", "tasks", "algorithms", "budget"]))]
    elif kind == "key":
        tree[draw(st.text(min_size=1, max_size=10).filter(lambda k: k not in GOOD))] = draw(st.integers())
    else:
        key = draw(st.sampled_from(sorted(WRONG)))
        tree[key] = draw(WRONG[key])
    return json_yaml(tree).encode("utf-8", "surrogatepass")


def json_yaml(tree: dict[str, Any]) -> str:
    """One line a key; JSON is YAML."""
    return "".join(f"{json.dumps(k)}: {json.dumps(v)}\n" for k, v in tree.items())


def ask(content: bytes, folder: Path) -> tuple[int, str, float]:
    """Give a file to ``parvibench run --dry-run``: exit code, what it said, seconds."""
    path = folder / "mine.yaml"
    path.write_bytes(content)
    said = io.StringIO()
    sys.argv = ["parvibench", "run", "--suite", str(path), "--dry-run", "--out", str(folder / "store")]
    start = time.monotonic()
    shared.console.file = said
    code = 0
    try:
        with contextlib.redirect_stdout(said):
            cli.main()
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException as error:
        return -1, f"Traceback: {type(error).__name__}: {error}", time.monotonic() - start
    return code, said.getvalue(), time.monotonic() - start


def wrong_with(content: bytes, answer: tuple[int, str, float], limit: float = 2.0) -> str:
    """What is wrong with an answer, or nothing; a file that is good after all may run."""
    code, said, seconds = answer
    if "Traceback" in said:
        return f"traceback: {said[-300:]}"
    if obeyed := {c for c in said if not c.isprintable() and c not in "\n\t"}:
        return f"control characters {obeyed}"
    if seconds > limit:
        return f"took {seconds:.1f} s"
    if code == 0:
        return ""
    if code != 2:
        return f"exit code {code}"
    if "mine.yaml" not in said and "samples (" not in said:
        return f"the file is not named: {said[:200]}"
    placed = re.search(r"mine\.yaml:\d+: ", said) or re.search(r"mine\.yaml: \S", said) or "samples (" in said
    return "" if placed else f"no place: {said[:200]}"


def study(count: int, limit: float = 2.0) -> tuple[list[str], dict[int, int], float]:
    """Ask about ``count`` files; problems, exit codes, the longest time."""
    found: list[str] = []
    codes: dict[int, int] = {}
    longest = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ask(json_yaml(GOOD).encode(), folder)  # imports

        @settings(
            max_examples=count, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(files())
        def every(content: bytes) -> None:
            nonlocal longest
            answer = ask(content, folder)
            codes[answer[0]] = codes.get(answer[0], 0) + 1
            longest = max(longest, answer[2])
            problem = wrong_with(content, answer, limit)
            if problem:
                found.append(f"{content[:200]!r}: {problem}")

        every()
    return found, codes, longest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=300)
    problems, exits, slowest = study(parser.parse_args().files)
    print(f"exit codes {exits}, longest {slowest:.2f} s, {len(problems)} problems")
    print("\n".join(problems))
    raise SystemExit(bool(problems))
