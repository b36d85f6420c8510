"""Whether a sampler is right for a model of the user's: ``calibrate``."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from parvibench.api import calibrate as api

from . import shared
from .progress import progress
from .shared import EXIT_FAILED, Json, answer, print_json

app = typer.Typer()


@app.command(
    epilog="Examples:\n\n`parvibench calibrate model.py:schools -a nuts`\n\n"
    "`parvibench calibrate model.py:MODEL -a my_sampler.py:MySampler --evaluations 5000 --json`"
)
def calibrate(
    model: Annotated[
        str,
        Argument(
            help="file.py:OBJECT or module:OBJECT: a task of pb.from_numpyro, or an object with prior(rng), simulate(params, rng) and model(data)."
        ),
    ],
    algorithm: Annotated[
        str,
        Option("--algorithm", "-a", help="Sampler: a name, module:Class or file.py:Class.", autocompletion=shared.names_of("algorithm")),
    ],
    setting: shared.Settings = None,
    sets: Annotated[int, Option(min=10, help="Most data sets; fewer are drawn where the ranks are plain.")] = 500,
    level: Annotated[float, Option(min=1e-6, max=0.5, help="Probability of a false alarm of the whole run.")] = 0.01,
    chains: Annotated[int, Option(min=1, help="Chains or particles per data set.")] = 4,
    evaluations: Annotated[int, Option(min=1, help="Score evaluations of a chain; half of its path is warm-up.")] = 2000,
    batch: Annotated[int, Option(min=1, help="Data sets side by side.")] = 50,
    seed: Annotated[int, Option(min=0, help="Seed of parameters, data and sampler.")] = 1,
    out: Annotated[Path, Option(help="Folder of the ranks, from which an interrupted run goes on, and the picture.")] = Path("parvibench-calibration"),
    as_json: Json = False,
) -> int:  # fmt: skip
    """Is this sampler right for my model? Exit code 0 if no fault is found, 1 if one is.

    Parameters are drawn from the model's prior, data given them; in the posteriors of these data the ranks of the parameters must
    be uniform (simulation-based calibration). A fault names the parameter, and whether its posterior is too narrow, too wide or shifted.
    """
    with progress() as show:
        outcome = api.calibrate(
            model, algorithm, settings=shared.parse_settings(setting, [algorithm]).get(algorithm), out=out, notify=show,
            sets=sets, level=level, chains=chains, evaluations=evaluations, batch=batch, seed=seed,
        )  # fmt: skip
    if as_json:
        print_json(outcome.document())
    else:
        answer(str(outcome))
        answer(f"ranks: {out / 'ranks.png'}")
    return 0 if outcome.right else EXIT_FAILED
