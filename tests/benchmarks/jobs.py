"""The jobs that are timed: ours, and the rivals each is compared with."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import metric_jobs
from pairing import Run
from stepping import Stepper, chunks, looped, one_after_another
from twinning import twin_of

from parvibench.core import registry
from parvibench.data.fetch import FOLDER_VARIABLE
from parvibench.data.fetch import registry as data_sets


@dataclass(frozen=True)
class Job:
    """One algorithm on one task, and what it is compared with."""

    name: str
    task: str
    algorithm: str
    settings: Mapping[str, Any]
    particles: int
    replicates: int = 1  # ours go in the harness's chunks; rivals take one after another
    rivals: Mapping[str, float | None] = field(default_factory=dict)  # name -> ratio that ours must reach, or None
    watched: bool = False  # a member of the small part that every change must pass
    per_evaluation: bool = False  # steps differ in length, so the unit is a score evaluation of a chain
    warmup: int = 0  # steps that both sides have behind them
    compiled: bool = False  # ours by the program of its own that --compile takes

    @property
    def missing(self) -> str:
        """Why this job cannot run here, or empty."""
        needed = [data_sets()[d].file for d in registry.tasks()[self.task].data]
        folder = Path(os.environ.get(FOLDER_VARIABLE, "nowhere"))
        absent = [file for file in needed if not (folder / file).is_file()]
        return f"needs {', '.join(absent)} on disk: set {FOLDER_VARIABLE}" if absent else ""

    def fresh(self, replicate: int = 0) -> Stepper:
        """Ours for one replicate."""
        stepper = Stepper(
            self.task, self.algorithm, self.settings, self.particles, (replicate,), compiled=self.compiled
        )
        stepper.run(self.warmup)
        return stepper

    def ours(self) -> Run:
        """As the harness runs it."""
        if self.per_evaluation:
            return self.fresh().run_evaluations
        parts = chunks(self.task, self.algorithm, self.settings, self.particles, self.replicates)
        return one_after_another([part.run for part in parts])

    def rival(self, name: str) -> Run:
        """The other side of a comparison, all replicates."""
        if name == "blackjax":
            import peers

            return getattr(peers, self.algorithm)(self.fresh())
        make = {
            "twin": lambda r: looped(twin_of(self.fresh(r)).step),
            "twin, one score": lambda r: looped(twin_of(self.fresh(r), inner_scores=False).step),
            "loop": lambda r: self.fresh(r).run,
        }[name]
        rivals = [make(r) for r in range(self.replicates)]
        for run in rivals:
            run(self.warmup)
        return one_after_another(rivals)


def absent(rival: str) -> str:
    """Why a rival cannot run here, or empty."""
    lacking = rival == "blackjax" and not find_spec("blackjax")
    return "needs BlackJAX: pip install '.[jax]'" if lacking else ""


_BLR, _BNN = "blr-waveform", "bnn-boston"
JOBS = (
    Job("SIFG on gmm5-2d, 1000 particles, 10 replicates", "gmm5-2d", "sifg", {"preset": "gmm5-2d"}, 1000, 10,
        {"twin": 3.8, "twin, one score": None}),
    Job("SIFG on gmm5-2d, 1000 particles", "gmm5-2d", "sifg", {"preset": "gmm5-2d"}, 1000, 1, {"twin": None}, True),
    Job("Ada-SIFG on bnn-boston, 100 particles", _BNN, "ada-sifg",
        {"preset": "bnn-boston-sifg", "noise": "kept", "sigma_rule": "kl", "sigma_step_size": 2.66e-8}, 100, 1,
        {"twin": 2.0, "twin, one score": None}),
    Job("SVGD on bnn-boston, 100 particles", _BNN, "svgd", {"preset": "bnn-boston-sifg"}, 100, 1,
        {"twin": 4.2, "blackjax": 2.5}),
    Job("SVGD on gmm5-2d, 1000 particles, exact median", "gmm5-2d", "svgd", {"step_size": 0.01}, 1000, 1,
        {"twin": None, "blackjax": 8.5}, True),
    Job("SVGD on gmm5-2d, 1000 particles, sampled median", "gmm5-2d", "svgd",
        {"step_size": 0.01, "bandwidth": "median-sampled"}, 1000, 1, {"twin": None, "blackjax": 34.0}),
    Job("KSIVI on diffusion-100, batch 128", "diffusion-100", "ksivi", {"preset": "diffusion-100"}, 100, 1,
        {"twin": 3.4}, True),
    Job("KSIVI on diffusion-100, batch 128, 10 replicates", "diffusion-100", "ksivi", {"preset": "diffusion-100"},
        100, 10, {"twin": None}),
    Job("KSIVI on blr-waveform", _BLR, "ksivi", {"preset": "blr-waveform"}, 100, 1, {"twin": 3.4}),
    Job("KSIVI on banana, batch 500", "banana", "ksivi", {"preset": "banana"}, 100, 1, {"twin": None}),
    Job("MALA on blr-waveform, 1000 chains", _BLR, "mala", {"preset": "blr-waveform"}, 1000, 1,
        {"twin": None, "blackjax": 1.1}),
    Job("MALA on blr-breast-cancer, 100 chains", "blr-breast-cancer", "mala", {"step_size": 1e-4}, 100, 1,
        {"twin": None}, True),
    Job("HMC on blr-waveform, 100 chains, 10 leapfrog steps", _BLR, "hmc", {"step_size": 5e-5}, 100, 1,
        {"blackjax": None}),
    Job("NUTS on blr-waveform, 100 chains, per leapfrog step", _BLR, "nuts", {"warmup_steps": 64}, 100, 1,
        {"blackjax": 1.3}, per_evaluation=True, warmup=80),
    Job("NUTS on blr-waveform, 100 chains, compiled, per leapfrog step", _BLR, "nuts", {"warmup_steps": 64}, 100, 1,
        {"blackjax": 1.3}, per_evaluation=True, warmup=80, compiled=True),
    Job("NUTS on blr-waveform, 1000 chains, per leapfrog step", _BLR, "nuts", {"warmup_steps": 64}, 1000, 1,
        {"blackjax": 1.3}, per_evaluation=True, warmup=80),
    Job("NUTS on funnel-10d, 100 chains, per leapfrog step", "funnel-10d", "nuts", {"warmup_steps": 64}, 100, 1,
        {"blackjax": 1.3}, per_evaluation=True, warmup=80),
    Job("NUTS on funnel-10d, 100 chains, compiled, per leapfrog step", "funnel-10d", "nuts", {"warmup_steps": 64}, 100, 1,
        {"blackjax": 1.3}, per_evaluation=True, warmup=80, compiled=True),
    Job("NUTS on funnel-10d, 1000 chains, per leapfrog step", "funnel-10d", "nuts", {"warmup_steps": 64}, 1000, 1,
        {"blackjax": 1.3}, per_evaluation=True, warmup=80),
    Job("SGLD on bnn-diabetes-sklearn, 20 chains", "bnn-diabetes-sklearn", "sgld", {"preset": "bnn-boston-sifg"}, 20, 1,
        {"twin": None}, True),
    Job("ULA on gmm5-2d, 1 chain, 20 replicates", "gmm5-2d", "ula", {"step_size": 1e-3}, 1, 20,
        {"twin": None, "loop": None}, True),
    Job("SRLD on banana, 1 chain, 20 replicates", "banana", "srld", {"step_size": 0.01, "spacing": 2}, 1, 20,
        {"loop": 4.0, "twin": None}, True, warmup=64),  # repulsion begins when the past points are there
)  # fmt: skip


class MetricJob:
    """The kernel Stein discrepancy and the same number by broadcasting."""

    name = f"ksd, n = {metric_jobs.SAMPLES}, D = {metric_jobs.DIM}"
    watched, missing = True, ""
    rivals: ClassVar[Mapping[str, float | None]] = {"twin": None}

    def ours(self) -> Run:
        """The metric on one replicate."""
        return looped(metric_jobs.ours)

    def rival(self, name: str) -> Run:
        """Its twin."""
        return looped(metric_jobs.twin)


METRIC_JOBS = (MetricJob(),)
