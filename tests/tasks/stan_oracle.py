"""Log densities and gradients by Stan: a program of its own, since PyStan pins versions of many packages.

    python stan_oracle.py PROGRAM.stan < {"data": {...}, "points": [[...], ...]} > {"log_density": [...], "score": [[...], ...]}

Points are on Stan's unconstrained scale, and densities include the logarithm of the Jacobian.
"""

import contextlib
import json
import sys
from pathlib import Path

import stan


def main(program: str) -> None:
    given = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        model = stan.build(Path(program).read_text(), data=given["data"])
        found = {
            "log_density": [model.log_prob(point) for point in given["points"]],
            "score": [model.grad_log_prob(point) for point in given["points"]],
            "names": model.constrained_param_names,
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
