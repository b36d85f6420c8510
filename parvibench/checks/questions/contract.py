"""The contract of the interface."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from parvibench.checks.question import Expected, Fixed, Values
from parvibench.checks.summaries import per_replicate
from parvibench.checks.targets import task_named
from parvibench.checks.words import PROMISES
from parvibench.core.algorithm import take_steps

from .of_sampler import Counted, OfSampler

#: Dependence of a replicate on its neighbours that rounding explains, relative to its size.
_ROUNDING = 1e-4
#: Added to the log density, nats.
_CONSTANT = 8.0


@dataclass(frozen=True)
class Contract(OfSampler):
    """The obligations of every algorithm, each 1 where it is met; ``words.PROMISES`` says how each is broken.

    All replicates start at the same points. A replicate may depend on others to 1e-4 of its samples' size, in double; what is
    charged is what was evaluated beneath the problem, and that is something. Interacting particles may move without noise: where
    neither replicates nor seeds part, ``distinct`` and ``seeded`` are without answer. So are they for replicates of which most
    points have not moved yet.
    """

    title = "contract"
    hint = "hidden state, randomness that is not drawn from `streams`, or evaluations beside `problem`"

    def measure(self, replicates: range, seed: int) -> Values:
        """0 or 1 for every obligation and replicate."""
        x, metered, scored = self._outputs(replicates, seed)
        again, other = (self._outputs(replicates, s)[0] for s in (seed, seed + 1))
        # Two replicates alone, then the others together.
        parts = [replicates[:1], replicates[1:2], replicates[2:]]
        apart = torch.cat([self._outputs(part, seed)[0] for part in parts if part])
        raised = self._outputs(replicates, seed, constant=_CONSTANT)[0]
        size = x.abs().flatten(1).amax(1) + 1e-300
        distinct = torch.tensor([sum(torch.equal(a, b) for b in x) == 1 for a in x]).double()
        seeded = (x != other).flatten(1).any(1).double()
        start = self._start(len(x)).to(x)
        if x.shape == start.shape:  # nearly every proposal may be rejected so far
            still = (x != start).any(2).double().mean(1) < 0.5
            distinct[still], seeded[still] = torch.nan, torch.nan
        deterministic = self.loaded.kind == "particles" and not distinct.any() and not seeded.any()
        if deterministic or not x.any():  # or nothing is left to compare
            distinct = seeded = torch.tensor(torch.nan)
        constant = (x - raised).abs().flatten(1).amax(1) <= _ROUNDING * size
        if self.loaded.kind == "generator":  # an optimiser may stop at a relative change of the density
            constant = torch.tensor(torch.nan)
        kept: dict[str, Tensor | bool] = {
            "alone": (x - apart).abs().flatten(1).amax(1) <= _ROUNDING * size,
            "distinct": distinct,
            "repeatable": (x == again).flatten(1).all(1),
            "seeded": seeded,
            "untouched": self._untouched(seed),
            "shape": x.shape[1:] == (self.points, task_named(self.task).dim),
            "dtype": x.dtype == torch.float64,
            "constant": constant,
            "metered": metered,
            "scored": scored,
        }
        return {f"contract.{k}": torch.as_tensor(v).double().expand(len(x)).tolist() for k, v in kept.items()}

    def expected(self) -> Mapping[str, Expected]:
        """All met."""
        return {f"contract.{name}": Fixed(1.0, better="higher") for name in PROMISES}

    def _start(self, count: int) -> Tensor:
        """The same points for every replicate, (R, N, D)."""
        task, g = task_named(self.task), torch.Generator().manual_seed(7)
        target = task.target([0], "cpu", torch.float64)
        return task.initial(target, self.points, [g]).repeat(count, 1, 1)

    def _outputs(self, ids: Sequence[int], seed: int, constant: float = 0.0) -> tuple[Tensor, bool, bool]:
        """Outputs (R, n, D), zero where not finite; whether meter and count agree, and whether anything was evaluated."""
        task, found, metered, scored = task_named(self.task), [], True, True
        for chunk in per_replicate(ids, self.loaded.max_chunk):
            counted = Counted(task.target(chunk, "cpu", torch.float64), constant)
            problem = self.problem(task, chunk, seed, self._start(len(chunk)), counted)
            found.append(self.observe(problem).outputs[self.effort.steps])
            metered = metered and abs(problem.meter.charged - counted.charged) <= 1e-6 * counted.charged
            scored = scored and counted.charged > 0
        return torch.cat(found).nan_to_num(0.0, 0.0, 0.0), metered, scored

    def _untouched(self, seed: int) -> bool:
        """Whether states stay as they are while the steps after them are taken."""
        algorithm, problem = self.loaded, self.problem(task_named(self.task), (0,), seed, self._start(1))
        settings = algorithm.make_settings(dict(self.effort.settings))
        with torch.inference_mode(not algorithm.differentiates):
            state = algorithm.init(problem, settings, problem.streams, self.effort.steps)
            held = [leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]
            before = [leaf.clone() for leaf in held]
            taken = take_steps(algorithm.step, problem, settings, state)
            for _ in range(2):
                next(taken)
        pairs = zip(held, before, strict=True)
        return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)
