"""The oracle of known truth: questions whose answers follow from theory, not from earlier results."""

from __future__ import annotations

from .at_rest import semi_implicit_questions
from .easy_targets import sampler_truths
from .gradients import gradient_questions
from .invariance import kernel_questions
from .langevin_laws import langevin_questions
from .metering import MeterCharges
from .metrics.estimators import metric_questions
from .randomness import Independence
from .simulated_posteriors import posterior_questions
from .steps import TruthQuestion
from .task_facts import task_questions


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
        *gradient_questions(),
        MeterCharges(),
        Independence(),
    ]
