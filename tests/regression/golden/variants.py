"""Settings under which an algorithm is looked at: every option at another value, alone and with the others moved too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from parvibench.core.algorithm import Algorithm
from parvibench.core.errors import SettingsError

#: A step with which Metropolis corrections reject, and schemes leave their small-step limit.
_LARGE_STEP = 0.1
#: Sizes that presets are cut to: they cost time only.
_CUT = {
    "hidden": 12, "critic_hidden": 12, "batch": 12, "mixing": 12, "pretraining": 2, "critic_pretraining": 2, "draws": 12,
    "leapfrogs": 3, "inner_steps": 3, "warmup_inner_steps": 3,
}  # fmt: skip
_FLOATS = (0.37, 1.7, 0.03, 3.9)
_INTEGERS = (3, 2, 4, 1)
#: Settings in place of those of the examples, with which rounding would grow within the steps.
_TAME: dict[str, Mapping[str, Any]] = {"chees-hmc": {"max_leapfrogs": 4}, "ada-sifg": {"sigma_step_size": 0.002}}
#: Settings that act together, or at values that those below miss.
_TOGETHER: dict[str, Sequence[Mapping[str, Any]]] = {
    "ada-gwg": [{"p_rule": "network-code", "p_step_size": 1e-3, "p_clip": 0.5}],
    "ksivi": [{"regularisation": 5.0}, {"log_var_floor": -0.002, "step_size": 0.01}, {"decay_every": 2, "decay": 0.5}],
    "sifg": [{"net_decay": 0.5, "net_learning_rate": 0.003}],
    "smc": [{"ess_share": 0.99, "annealing": 0.3}],
    "psgld": [{"decay": 0.3, "damping": 0.1, "step_size": 0.1}],
}


def variants(algorithm: Algorithm) -> Iterator[tuple[str, dict[str, Any]]]:
    """Labels and settings: the defaults, and every option at another value, alone and with the others moved too."""
    quick, moved = quick_settings(algorithm), moved_settings(algorithm)
    fields = algorithm.settings_type.model_fields
    yield "defaults", dict(_TAME.get(algorithm.name, {}))
    yield "all moved", moved
    if "step_size" in fields and algorithm.kind == "chains":
        yield f"step_size={_LARGE_STEP}", quick | {"step_size": _LARGE_STEP}
    for field, info in fields.items():
        for value in choices(info.annotation):
            if value != info.default and _valid(algorithm, quick | {field: value}):
                yield f"{field}={value}", quick | {field: value}
                if _valid(algorithm, moved | {field: value}):
                    yield f"{field}={value}, others moved", moved | {field: value}
        for value in itertools.islice(_numbers(info.annotation, info.default, algorithm, quick, field), 1):
            yield f"{field}={value:.3g}", quick | {field: value}
    for together in _TOGETHER.get(algorithm.name, ()):
        yield ", ".join(f"{k}={v}" for k, v in together.items()), quick | dict(together)


def quick_settings(algorithm: Algorithm) -> dict[str, Any]:
    """Settings with which every branch runs within a few steps."""
    return {**algorithm.example.quick, **_TAME.get(algorithm.name, {})}


def moved_settings(algorithm: Algorithm) -> dict[str, Any]:
    """The same with all numbers off their defaults."""
    moved = quick_settings(algorithm)
    for field, info in algorithm.settings_type.model_fields.items():
        value = next(iter(_numbers(info.annotation, info.default, algorithm, moved, field)), None)
        moved |= {} if value is None else {field: value}
    return moved


def choices(annotation: Any) -> Iterator[Any]:
    """The words and truth values that a field takes, and None."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif annotation is bool:
        yield from (False, True)
    elif annotation is type(None):
        yield None
    else:
        for part in get_args(annotation):
            if not isinstance(part, int | float):
                yield from choices(part)


def _numbers(
    annotation: Any, default: Any, algorithm: Algorithm, settings: dict[str, Any], field: str
) -> Iterator[int | float]:
    """Valid numbers off the default for a field that takes numbers, given the other settings."""
    kinds = {annotation, *_parts(annotation)}
    known: tuple[float, ...] = _INTEGERS if int in kinds else _FLOATS if float in kinds else ()
    if float in kinds and isinstance(default, float) and default:
        known = (0.7 * default, 1.3 * default, *known)
    now = settings.get(field, default)
    return (v for v in known if v not in (default, now) and _valid(algorithm, settings | {field: v}))


def _parts(annotation: Any) -> Iterator[Any]:
    for part in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield part
        yield from _parts(part)


def _valid(algorithm: Algorithm, settings: dict[str, Any]) -> bool:
    try:
        algorithm.make_settings(settings)
    except SettingsError:
        return False
    return True


def cut_settings(algorithm: Algorithm, preset: str) -> dict[str, Any]:
    """A preset with its sizes cut."""
    given = algorithm.expand_preset({"preset": preset})
    return {key: min(value, _CUT[key]) if key in _CUT else value for key, value in given.items()}
