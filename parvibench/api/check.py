"""``check``: a sampler, or all built-in ones, against known truth."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from parvibench.core.errors import InputError

if TYPE_CHECKING:
    from parvibench.checks.rounds import Findings
    from parvibench.core.algorithm import Algorithm


def check(
    sampler: str | Algorithm | type[Algorithm] | None = None,
    *,
    iterations: int = 500,
    seed: int | None = None,
    workers: int = 0,
    **settings: Any,
) -> Findings:
    """Test a sampler against known truth and the contract; without one, every built-in method, as ``parvibench check``.

    Args:
        sampler: a name, ``module:Class``, an object or a class.
        iterations: number of iterations of an unregistered sampler: enough for a curved target of unit scale.
        seed: of all fresh replicates; by default drawn at random and stored in the result.
        workers: number of processes; 0 runs in this one, as objects that cannot be imported always do.
        settings: of an unregistered sampler.

    Returns:
        ``verdict`` (``pass``, ``wrong`` or ``not converged``), ``tests``, ``red`` (those that failed), ``seed``.
    """
    from parvibench.checks.rounds import check as run
    from parvibench.checks.selection import outside_questions, select_questions
    from parvibench.core import registry

    from .plan import named_methods

    root = secrets.randbelow(2**31) if seed is None else seed
    if sampler is None or (isinstance(sampler, str) and not registry.is_elsewhere(sampler)):
        if settings:
            raise InputError(
                "settings apply to unregistered samplers only; built-in methods are checked with their own"
            )
        asked = select_questions(algorithms=() if sampler is None else (sampler,)).resolve()
        return run(asked.questions, seed=root, workers=workers)
    if not isinstance(sampler, str):
        (entry,), held = named_methods([sampler])
        assert isinstance(entry, dict)
        sampler, workers = (held[0], 0) if held else (entry["name"], workers)  # type: ignore[assignment]
    return run(outside_questions(sampler, settings, iterations), seed=root, workers=workers)  # type: ignore[arg-type]
