"""How many independent draws a test of means and variances would need to see an error on a plain Gaussian."""

from __future__ import annotations

import math
import time

import torch

import parvibench as pb
from parvibench.checks.targets import STABLE
from parvibench.core.algorithm import take_steps
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

#: Two dimensions, standard deviations 1 and correlation 0.7; replicates, points and steps; standard errors of a finding.
TARGET, UNIT, REPLICATES, POINTS, STEPS, BURN_IN, ERRORS = "tilted", 2.0, 4, 300, 300, 100, 5.0


def moments_of(sampler: type[pb.Algorithm], seed: int = 3) -> dict[str, float]:
    """Largest errors of mean (in sd) and variance (relative) in long runs, and the draws at which either is 5 errors.

    ``needed`` is infinite where neither error is three of its own standard errors.
    """
    started, task = time.process_time(), STABLE[TARGET].in_units(UNIT)
    generator = torch.Generator().manual_seed(seed)
    start = torch.stack([task.exact(POINTS, generator) for _ in range(REPLICATES)])
    ids = tuple(range(REPLICATES))
    streams = Streams(seed, ids, "cpu", torch.float64)
    target = task.target(ids, "cpu", torch.float64)
    problem = Problem(target, streams, start=lambda _, n, __: start[:, :n].clone(), particles=POINTS)
    algorithm, settings = sampler(), sampler.make_settings({})
    total = torch.zeros(2, *start.shape, dtype=torch.float64)
    facts = task.facts
    assert facts.mean is not None
    assert facts.sd is not None
    with torch.inference_mode():
        state = algorithm.init(problem, settings, streams, STEPS)
        taken = take_steps(algorithm.step, problem, settings, state)
        for number, (moved, _) in zip(range(STEPS), taken, strict=False):
            if number >= BURN_IN:
                z = (moved.x / UNIT - facts.mean) / facts.sd
                total += torch.stack([z, z.square() - 1])
    values = (total / (STEPS - BURN_IN)).transpose(0, 1).nan_to_num(1e9)
    unit = values.mean(2) if algorithm.kind == "particles" else values.permute(0, 2, 1, 3).flatten(0, 1)
    error, own = unit.mean(0), unit.std(0) / math.sqrt(len(unit))
    seen = error.abs() > 3 * own
    scale = torch.tensor([[1.0], [math.sqrt(2)]], dtype=torch.float64)  # sd of z and of z^2
    draws = torch.where(seen, (ERRORS * scale / error).square(), math.inf)
    mean, variance = (float(e[e.abs().argmax()]) for e in error)
    cpu = round(time.process_time() - started, 1)
    return {"mean": mean, "variance": variance, "needed": float(draws.min()), "cpu_s": cpu}
