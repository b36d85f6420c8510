"""Which method to trust on a task without reference: what is known of each, the answer, and what would settle it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parvibench.reporting.formatting import name, named

#: What KSD, and its value by chance, say.
KSD = (
    "KSD: of the first replicate, thinned to its effective size. By chance: median distance between random halves of these "
    "draws, the KSD of as many draws of the target. KSD sees neither wrong weights of separated modes nor a mode that was missed."
)


@dataclass(frozen=True)
class Method:
    """Diagnostics of a method on a task; NaN where not measured."""

    label: str
    rhat: float  #: of the worst coordinate
    ess_bulk: float  #: per 1,000 score evaluations
    ess_bulk_per_second: float
    ess_tail: float  #: per 1,000 score evaluations
    ess_tail_per_second: float
    divergences: float  #: share of the transitions
    ksd: float
    ksd_by_chance: float  #: that of as many draws of the target, by random halves of the method's own
    ksd_p_value: float  #: of their comparison, by wild bootstrap
    agrees: Sequence[str]  #: labels of methods of the same means and standard deviations
    differs: Sequence[str]  #: labels of methods of others
    passes: bool  #: whether R-hat, ESS and divergences pass


@dataclass(frozen=True)
class Answer:
    """The methods of a task without reference, and the one to trust."""

    methods: Sequence[Method]
    trusted: str  #: its label; empty where none is
    commands: Sequence[str]  #: that settle which method is right
    lost: Sequence[str] = ()  #: labels of methods that ended without finite samples

    def sentence(self, task: str) -> str:
        """The method to trust, and why, or that there is none."""
        start = f"{name(task)} has no reference. "
        lost = f" Without finite samples: {named(self.lost, 6)}." if self.lost else ""
        passing = [method.label for method in self.methods if method.passes]
        if self.trusted:
            (agrees,) = (method.agrees for method in self.methods if method.label == self.trusted)
            fails = "" if set(agrees) & set(passing) else ", though its own diagnostics fail,"
            return (
                f"{start}Trust {name(self.trusted)}: its R-hat, ESS and divergences pass, and another method{fails} agrees with its "
                f"means and standard deviations. Agreement cannot show a mode that all methods missed.{lost}"
            )
        if not self.methods:
            return f"{start}Trust none: no method ended with finite samples."
        undiagnosed = all(math.isnan(method.rhat) for method in self.methods)
        longer = "; none has an R-hat, add chains such as nuts" if undiagnosed else "; a longer run may pass"
        without = ", without agreement" if passing else longer
        return (
            f"{start}Trust none: R-hat, ESS and divergences pass for {named(passing, 6) or 'no method'}{without}.{lost}"
        )
