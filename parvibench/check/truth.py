"""The oracle of known truth: questions whose answers follow from theory, whatever the code said before."""

from __future__ import annotations

from .truth_kernels import kernel_questions
from .truth_langevin import langevin_questions
from .truth_meter import MeterCharges
from .truth_metrics import metric_questions
from .truth_posteriors import posterior_questions
from .truth_runs import TruthQuestion
from .truth_samplers import sampler_truths
from .truth_semi_implicit import semi_implicit_questions
from .truth_streams import Independence
from .truth_tasks import task_questions


def truth_questions() -> list[TruthQuestion]:
    """All questions, in a fixed order; none needs a data file."""
    return [
        *kernel_questions(),
        *posterior_questions(),
        *langevin_questions(),
        *sampler_truths(),
        *semi_implicit_questions(),
        *task_questions(),
        *metric_questions(),
        MeterCharges(),
        Independence(),
    ]
