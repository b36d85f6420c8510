"""Table 1 of the SIFG paper: the presets on the -sifg tasks give the printed numbers.

Arithmetic means over a few seeds, within three joint standard deviations; the printed one is at least one printed unit.
Seconds to minutes of one core for each run of 2,000 iterations.
"""

import math
import statistics

import pytest
import torch
from sampler_toys import Run
from studies.papers.published import numbers

from parvibench.core.errors import DataMissingError
from parvibench.core.registry import load_algorithm, load_task
from parvibench.data.fetch import fetch, registry

PRINTED = {"svgd": "SVGD", "l2-gf": "L2-GF", "ada-gwg": "Ada-GWG", "ada-sifg": "Ada-SIFG"}
#: Printed with three digits behind the point, their spreads with two.
UNIT = 0.01


def measured(name: str, task_name: str, seed: int) -> dict[str, float]:
    """RMSE and NLL of one run by the preset."""
    task, protocol = load_task(task_name), load_algorithm(name).protocol(task_name)
    problem = task.problem((seed,), 0, particles=protocol["particles"])
    iterations = protocol["iterations"]
    run = Run(name, problem, iterations, preset=task_name).steps(iterations)
    held_out = task.predictive((seed,), "cpu", torch.float32)
    means, sds = held_out.predict(run.output(protocol["samples"]))
    likelihoods = torch.distributions.Normal(means, sds.unsqueeze(-1)).log_prob(held_out.y.unsqueeze(1))
    mixture = likelihoods.logsumexp(1) - math.log(protocol["samples"])
    error = (means.mean(1) - held_out.y).square().mean().sqrt()
    return {"RMSE": error.item(), "NLL": -mixture.mean().item()}


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("dataset", ["Boston", "Concrete"])
@pytest.mark.parametrize("name", PRINTED)
def test_the_preset_gives_the_printed_number(name: str, dataset: str) -> None:
    """Catches another split of Boston (RMSE 6.9 for SVGD), noise kept in SIFG's inner steps, p moved the other way."""
    task = f"bnn-{dataset.lower()}-sifg"
    try:
        for needed in load_task(task).data:
            assert fetch(needed).stat().st_size == registry()[needed].bytes
    except DataMissingError as missing:
        pytest.skip(str(missing).splitlines()[0])
    runs = [measured(name, task, seed) for seed in range(3)]
    for metric in ("RMSE", "NLL"):
        ours = [run[metric] for run in runs]
        printed = numbers()[f"sifg/table-1/{dataset}/{PRINTED[name]}/{metric}"]
        joint = math.hypot(max(printed.std, UNIT), statistics.stdev(ours))
        assert abs(statistics.mean(ours) - printed.value) <= 3 * joint, (metric, ours)
