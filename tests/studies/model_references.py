"""Build the references of the posteriors, one after another, cheap ones first: those that are there stay.

    PARVIBENCH_DATA_DIR=data OMP_NUM_THREADS=1 python tests/studies/model_references.py [TASK...]

A refusal is printed with its reasons, and the next one is begun. ``hours`` of processor time are those of one core.
"""

import sys

from parvibench.api.certify import Refused, build_reference
from parvibench.core.errors import ParVIBenchError
from parvibench.core.registry import has_reference

DENSE, SHORT = {"mass": "dense"}, {"warmup": 300, "draws": 150}
EXACT = {"method": "exact", "draws": 95}
#: Task -> effort.
PLANS: dict[str, dict[str, object]] = {}


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""


def main() -> None:
    """Build what lacks."""
    for name in sys.argv[1:] or PLANS:
        if has_reference(name):
            continue
        try:
            print(build_reference(name, notify=silent, **PLANS[name]).path, flush=True)
        except (Refused, ParVIBenchError) as refusal:
            print(refusal, flush=True)


if __name__ == "__main__":
    main()
