"""How much golden values move under rounding: shifted inputs, two threads, narrower vectors, another PyTorch.

``python tests/studies/trace_stability.py [--shift 1e-10] [--threads 2] [--save FILE | --against FILE]``
takes all traces in this process and prints the largest relative differences from the stored ones, or from a file that
another environment has saved (``ATEN_CPU_CAPABILITY``, ``OPENBLAS_CORETYPE``, ``MKL_ENABLE_INSTRUCTIONS``, another
interpreter). Exit code 1 where one is above 1e-8, with a shift above 1e-7.
"""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "regression"))

from golden import stored
from golden.catalogue import subjects, surroundings, traces_of
from golden.trace import Values, taken

#: Largest differences allowed.
ROUNDING, SHIFTED = 1e-8, 1e-7
_SHOWN = 40


def difference(a: Values, b: Values) -> float:
    """Largest relative difference of two takings of a trace; infinite where texts or counts differ."""
    if a.keys() != b.keys():
        return float("inf")
    worst = 0.0
    for label, before in a.items():
        if len(before) != len(b[label]):
            return float("inf")
        for x, y in zip(before, b[label], strict=True):
            if isinstance(x, str) or isinstance(y, str):
                worst = worst if x == y else float("inf")
            elif abs(x - y) > stored.ZERO:
                worst = max(worst, abs(x - y) / max(abs(x), abs(y)))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how much golden values move under rounding.")
    parser.add_argument("--shift", type=float, default=0.0, help="of every uniform number")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", type=Path, help="write the traces here")
    parser.add_argument("--against", type=Path, help="compare with this file in place of the stored traces")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    began = time.process_time()
    with surroundings(arguments.shift):
        found = {trace.name: taken(trace) for subject in subjects() for trace in traces_of(subject).values()}
    seconds = time.process_time() - began
    if arguments.save:
        stored.write(arguments.save, found)
    known = stored.load(arguments.against)
    differences = {name: difference(known[name], values) for name, values in found.items() if name in known}
    limit = SHIFTED if arguments.shift else ROUNDING
    beyond = {name: d for name, d in differences.items() if d > limit}
    print(
        f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {arguments.threads} threads, shift {arguments.shift:g}"
    )
    print(
        f"{len(differences)} traces, {seconds:.1f} s of processor time; largest difference {max(differences.values()):.1e}"
    )
    print(f"{len(beyond)} beyond {limit:g}")
    for name, value in sorted(differences.items(), key=lambda pair: -pair[1])[:_SHOWN]:
        if value > limit:
            moved = stored.differences(known[name], found[name])
            print(f"  {value:.1e}  {name}{f': {moved[0]}' if moved else ''}")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
