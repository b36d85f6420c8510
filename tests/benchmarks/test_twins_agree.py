"""The twins compute what the fast paths compute: same start, same noise, float64, a few steps."""

from typing import Any

import jobs
import metric_jobs
import pytest
import torch
from jobs import JOBS, Job
from stepping import Stepper
from torch import Tensor
from twin_samplers import KSIVI
from twinning import twin_of

STEPS = 3
TWINNED = [job for job in JOBS if "twin" in job.rivals and "sampled" not in job.name and job.replicates == 1]
#: The same methods, smaller.
SMALLER = {
    "sifg": {"warmup_inner_steps": 3}, "ada-sifg": {"hidden": 20, "inner_steps": 3, "warmup_inner_steps": 3},
    "ksivi": {"batch": 30},
}  # fmt: skip
#: Sources of noise of a twin, by the stream of ours.
NOISE = {"ksivi": {"latent": "algorithm", "draw": "noise"}, "svgd": {}}


def small(job: Job) -> Stepper:
    settings = {**job.settings, **SMALLER.get(job.algorithm, {})}
    return Stepper(job.task, job.algorithm, settings, min(job.particles, 60), dtype=torch.float64)


class Replay:
    """The noise that our side draws: of the initialisation first where it draws some, then step by step."""

    def __init__(self, job: Job, law: str, stream: str) -> None:
        self.streams = small(job).problem.streams
        self.draw, self.stream = getattr(self.streams, law), stream
        self.step = -1 if "sifg" in job.algorithm else 0

    def __call__(self, *shape: int) -> Tensor:
        stream, self.streams.step = ("init" if self.step < 0 else self.stream), max(self.step, 0)
        self.step += 1
        return self.draw(stream, shape)[0].clone()


def position(twin: Any) -> Tensor:
    """The twin's points, or the parameters of its sampler in our order."""
    if isinstance(twin, KSIVI):
        modules = [p.T if p.dim() == 2 else p for p in twin.network.parameters()]
        return torch.cat([p.flatten() for p in (*modules, twin.log_var)]).detach()
    return twin.x


@pytest.mark.parametrize("job", TWINNED, ids=lambda job: job.name)
def test_ours_and_its_twin_are_at_the_same_place(job: Job) -> None:
    """Catches a fast path that changes the method, and a twin that is another method."""
    if job.missing:
        pytest.skip(job.missing)
    ours, batches = small(job), small(job).problem
    noise = NOISE.get(job.algorithm, {"draw": "noise"})
    options = {name: Replay(job, "normal", stream) for name, stream in noise.items()}
    if job.algorithm == "mala":
        options["uniform"] = Replay(job, "uniform", "algorithm")

    def next_rows() -> Tensor:
        batches.streams.step = ours.steps
        return batches._batch()[0]

    twin = twin_of(small(job), next_rows, **options)
    start = ours.state[0].clone()
    for _ in range(STEPS):
        twin.step()
        ours.step()
    there = position(twin).view_as(start[0])
    assert (ours.state[0] - start).abs().max() > 1e-5
    # Adam divides by the gradient's own size: rounding of tiny gradients shows more there
    tolerance = 1e-8 if job.algorithm == "ksivi" else 1e-9
    torch.testing.assert_close(ours.state[0][0], there, rtol=tolerance, atol=tolerance)


def test_the_metric_and_its_twin_give_the_same_number() -> None:
    """Ours is computed in single precision in part."""
    assert metric_jobs.ours().item() == pytest.approx(metric_jobs.twin(), rel=1e-4)


def test_every_job_names_a_task_and_an_algorithm_that_exist() -> None:
    names = [job.name for job in (*JOBS, *jobs.METRIC_JOBS)]
    assert len(set(names)) == len(names)
    for job in JOBS:
        algorithm = jobs.registry.load_algorithm(job.algorithm)
        assert not algorithm.needs - jobs.registry.load_task(job.task).provides
