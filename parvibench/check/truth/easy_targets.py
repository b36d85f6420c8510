"""Every built-in sampler on easy targets: which settings and how many steps are enough there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .contract import Contract, Effort, Tolerance
from .steps import TruthQuestion, settings_of


def _effort(steps: int, points: int = 50, **settings: Any) -> Effort:
    return Effort(settings_of(**settings), steps, points)


_REFITTED: dict[str, Any] = {"step_size": 0.1, "hidden": 16}
_NOISY: dict[str, Any] = {**_REFITTED, "sigma": 0.3, "net_optimiser": "adam", "net_learning_rate": 0.01}
_SEMI_IMPLICIT: dict[str, Any] = {"step_size": 0.01, "batch": 32, "hidden": 16, "beta2": 0.99}
_UNDERDAMPED: dict[str, Any] = {"step_size": 0.05, "friction": 0.5}
_MOMENTUM: dict[str, Any] = {"step_size": 0.01, "friction": 0.1}

#: Every algorithm that samples a posterior -> what suffices on a unit Gaussian.
EFFORTS = {
    "svgd": _effort(100, step_size=0.5),
    "sgld": _effort(100, step_size=0.1),
    "ula": _effort(100, step_size=0.1),
    "mala": _effort(100, step_size=0.3),
    "hmc": _effort(50, step_size=0.1, leapfrog_steps=4),
    "sifg": _effort(100, **_NOISY),
    "ksivi": _effort(200, 200, **_SEMI_IMPLICIT),
    "srld": _effort(1500, step_size=0.1, alpha=1.0),
    "lapd": _effort(100, step_size=0.1),
    "lapd-decay": _effort(100, step_size=0.1),
    "psgld": _effort(300, step_size=0.03, damping=1.0),
    "sghmc": _effort(150, **_MOMENTUM),
    "uld": _effort(150, **_UNDERDAMPED),
    "sr-uld": _effort(1500, **_UNDERDAMPED, alpha=1.0),
    "sr-sghmc": _effort(1500, **_MOMENTUM, alpha=1.0),
    "nuts": _effort(30, max_tree_depth=4),
    "ada-sifg": _effort(100, **_NOISY),
    "l2-gf": _effort(100, **_REFITTED, net_learning_rate=0.01),
    "ada-gwg": _effort(100, **_REFITTED, net_learning_rate=0.01),
    "mied": _effort(150, step_size=0.05),
    "ksdd": _effort(100, step_size=0.05),
    "ksivi-ustat": _effort(200, 200, **_SEMI_IMPLICIT),
    "sivi": _effort(200, 200, **_SEMI_IMPLICIT, mixing=20),
    "sivi-sm": _effort(
        200, 200, **{**_SEMI_IMPLICIT, "step_size": 0.005}, critic_hidden=32, critic_learning_rate=0.01
    ),
    "uivi": _effort(150, 200, **_SEMI_IMPLICIT, warmup=2, kept=2, leapfrog_steps=3),
    "mean-field": _effort(200, 200, step_size=0.05),
    "full-rank": _effort(200, 200, step_size=0.05),
    "iaf": _effort(150, 200, step_size=0.05, hidden=8, flows=1),
}
#: Those that do not find both of two modes in these few steps, or not by nature; NUTS is slow.
_ONE_MODE = frozenset({"ksivi", "ksivi-ustat", "sivi-sm", "mean-field", "full-rank", "iaf", "ksdd", "nuts"})
#: A bent target takes short steps and many of them.
_BENT = {
    "svgd": _effort(500, step_size=0.1),
    "mala": _effort(300, step_size=0.05),
    "hmc": _effort(150, step_size=0.02, leapfrog_steps=6, jitter=0.3),
    "psgld": _effort(900, step_size=0.02, damping=1.0),
    "sghmc": _effort(450, step_size=0.002, friction=0.1),
}
#: Steps of the contract: enough for a memory of ten states to fill and act.
_CONTRACT_STEPS, _FEW = 14, 3
_SHORT_STEPS = {"step_size": 1e-3, "net_learning_rate": 1e-4}
_COSTLY = frozenset({"nuts", "uivi"})


def sampler_truths() -> list[TruthQuestion]:
    """Easy targets and the contract, for every built-in sampler."""
    two_modes = [name for name in EFFORTS if name not in _ONE_MODE]
    return [
        *(Tolerance("biased-start-gaussian", name, effort) for name, effort in EFFORTS.items()),
        *(Tolerance("multimodal", name, EFFORTS[name]) for name in two_modes),
        *(Tolerance("banana", name, effort) for name, effort in _BENT.items()),
        *(Contract("linear-regression", name, _brief(name, effort)) for name, effort in EFFORTS.items()),
    ]


def _brief(name: str, effort: Effort) -> Effort:
    """A few steps on a posterior of width 1/10, short enough that rounding errors stay small."""
    settings = tuple((key, _SHORT_STEPS.get(key, value)) for key, value in effort.settings)
    steps = _FEW if name in _COSTLY else _CONTRACT_STEPS
    return replace(effort, settings=settings, steps=steps, points=20)
