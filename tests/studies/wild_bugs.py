"""Whether `check` at its default settings sees bugs of well-known libraries, and errors planted into samplers.

    python tests/studies/wild_bugs.py measure --store FILE [--only wild|right|planted] [--look first]
    python tests/studies/wild_bugs.py report --store FILE

``measure`` adds a line to the store for every sampler that it lacks, and stops a check at the first failed question.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from wild.common import with_bug
from wild.moments import moments_of

import parvibench as pb
from parvibench.checks.outcomes import RED
from parvibench.checks.rounds import check
from parvibench.checks.selection import outside_questions

HERE = Path(__file__).parent / "wild"
#: Seed of every check, as of one in CI.
SEED = 20240229
#: Bugs that change a law and were not detected at the first look, and the shares of steps with an error.
MISSED, SHARES = ("netket-2254", "pints-1246", "blackjax-30", "pymc-5816"), (1.0, 0.5, 0.25, 0.125)


@dataclass(frozen=True)
class Bug:
    """An entry of the list."""

    name: str
    at: str
    reference: str
    error: str
    tests: str
    replaces: str = ""
    counted: bool = True

    def sampler(self, right: bool = False) -> type[pb.Algorithm]:
        """The port with its bug, or without."""
        module, port, bug = self.at.split(":")
        return with_bug(getattr(import_module(f"wild.{module}"), port), "" if right else bug)


def bugs() -> list[Bug]:
    """The list, in its order."""
    return [Bug(**entry) for entry in yaml.safe_load((HERE / "wild.yaml").read_text())["bugs"]]


def counting(sampler: type[pb.Algorithm], drawn: list[int]) -> type[pb.Algorithm]:
    """The sampler, which also counts the states of chains or particles that it makes."""

    def step(self: Any, problem: pb.Problem, settings: Any, state: Any, streams: pb.Streams) -> Any:
        drawn[0] += state.x.shape[0] * state.x.shape[1]
        return sampler.step(self, problem, settings, state, streams)

    return type(sampler.__name__, (sampler,), {"step": step, "name": sampler.name, "__module__": sampler.__module__})


def ask(sampler: type[pb.Algorithm], first_on: str = "") -> dict[str, Any]:
    """The first failed test of a check, or none, with its costs; the questions on one target come first."""
    drawn, started = [0], time.process_time()
    questions = sorted(outside_questions(counting(sampler, drawn)(), {}, 500), key=lambda q: q.task != first_on)
    found = check(questions, seed=SEED, fail_fast=True)
    red = [asdict(t) for t in found.tests if t.verdict in RED]
    first = min(red, key=lambda t: t["p_value"]) if red else {}
    kept = {k: first[k] for k in ("task", "metric", "verdict", "reason", "p_value", "effect") if k in first}
    return {"found": bool(red), "draws": drawn[0], "cpu_s": round(time.process_time() - started, 1), **kept}


def diluted(bug: Bug, share: float) -> type[pb.Algorithm]:
    """The port whose error is in that share of the steps, evenly spread over them."""
    wrong, right = bug.sampler(), bug.sampler(right=True)

    def step(self: Any, problem: pb.Problem, settings: Any, state: Any, streams: pb.Streams) -> Any:
        chosen = wrong if (streams.step * 0.6180339887) % 1 < share else right
        return chosen.step(chosen(), problem, settings, state, streams)  # type: ignore[arg-type]

    return type("Diluted", (right,), {"step": step, "name": f"{bug.name}-{share}", "__module__": right.__module__})


def work(only: str) -> Iterator[tuple[str, str, Callable[[], type[pb.Algorithm]]]]:
    """Kind, name and sampler of everything that is checked; right versions once a class."""
    if only in ("", "wild", *(b.name for b in bugs())):
        yield from (("wild", b.name, b.sampler) for b in bugs())
    if only in ("", "right"):
        ports = {b.at.rpartition(":")[0]: b for b in bugs()}
        yield from (("right", port, lambda b=b: b.sampler(right=True)) for port, b in ports.items())
    if only in ("", "right-planted"):
        from wild.planted import ports

        yield from (("right-planted", p.name, lambda p=p: with_bug(p, "")) for p in ports())
    if only == "power":
        missed = {b.name: b for b in bugs() if b.name in MISSED}
        for name, share in ((n, q) for q in SHARES for n in missed):
            yield "power", f"{name} {share}", lambda b=missed[name], q=share: diluted(b, q)
    if only.startswith("planted") or not only:
        from wild.planted import planted

        for name, group, sampler in planted():
            if only in ("", "planted", f"planted-{group}"):
                yield f"planted-{group}", name, lambda s=sampler: s


def measure(store: Path, look: str, only: str, first_on: str) -> None:
    """Check what the store lacks."""
    lines = store.read_text().splitlines() if store.exists() else []
    done = {(e["look"], e["kind"], e["name"]) for e in map(json.loads, lines)}
    torch.set_num_threads(1)
    for kind, name, sampler in work(only):
        if (look, kind, name) in done or (only and only not in (kind, name) and not kind.startswith(only)):
            continue
        measured = moments_of(sampler()) if look == "moments" else ask(sampler(), first_on)
        entry = {"look": look, "kind": kind, "name": name, **measured}
        with store.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(f"{kind:14}{name:34}{entry.get('task', '-')} {entry.get('metric', '')} {entry['cpu_s']} s", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("measure", "report"))
    parser.add_argument("--store", type=Path, required=True, help="JSON lines of what was measured")
    parser.add_argument(
        "--look", default="first", help="label of the questions as they stand; moments: of a plain test"
    )
    parser.add_argument(
        "--only", default="", help="wild, right, right-planted, power, planted, planted-shown, planted-aside or a bug"
    )
    parser.add_argument("--first-on", default="", help="target whose questions come first, where time is short")
    args = parser.parse_args()
    if args.command == "measure":
        measure(args.store, args.look, args.only, args.first_on)
    else:
        from wild.page import write

        write(args.store)


if __name__ == "__main__":
    main()
