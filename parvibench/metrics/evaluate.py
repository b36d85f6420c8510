"""Comparison of one set of samples with a task's reference: the document of ``parvibench evaluate``."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.metric import Context, Cost
from parvibench.core.reference import Floor, Floored, Predictions, Reference
from parvibench.core.registry import load_metric
from parvibench.core.result import to_json_number
from parvibench.core.target import Target
from parvibench.core.task import Task

from .chains import FEWEST_DRAWS, TAILS, array_stats
from .common import average_ranks, thin
from .compute import check_samples, compute_guarded, values_of
from .copies import Copies, find_copies
from .divergence import NEAREST
from .equivalent import equivalent_sample_size
from .floors import (
    ALPHA,
    SIZES,
    FloorTests,
    Notify,
    density_of,
    floor_tests,
    judged_size,
    p_value,
    silent,
    sizes_judged,
    verdict_sizes,
)
from .moments import worst_named
from .own_floors import with_floors
from .stein import bootstrapped_ksd

_DEPENDENT = "no interval: neighbouring samples are correlated, and the interval is that of independent ones"
#: Most samples that metrics are computed of: pairwise ones take the square of it.
MOST_SAMPLES = 5000
#: Most samples of the wild bootstrap, and its values.
_BOOTSTRAP_SAMPLES, _BOOTSTRAP_VALUES = 1000, 2000
#: Fields of a metric's row that may be missing, in their order.
_NUMBERS = (
    "value", "n_judged", "judged", "floor", "ratio", "p_value", "p_adjusted", "equivalent_sample_size",
    "equivalent_sample_size_interval",
)  # fmt: skip
#: What remains unseen without a reference.
BLIND = (
    "without a reference only KSD judges, by wild bootstrap: it cannot see wrong weights of separated modes, nor a mode that "
    "was missed"
)


def evaluate_samples(
    task: Task,
    samples: Any,
    cost: Cost | None = None,
    metrics: Sequence[str] | None = None,
    reference: Reference | None = None,
    names: Sequence[str] = (),
    notify: Notify = silent,
) -> dict[str, Any]:
    """Value, floor, verdict and equivalent sample size of every metric of a task.

    Predictive tasks are judged on the data split of replicate 0. Without a reference KSD is tested by the wild bootstrap.

    Samples are array-like, (n, D), n >= 2, or chains, (C, T, D), with ``names`` of the D coordinates and a ``cost`` if known;
    ``metrics`` and ``reference`` in place of the task's. ``notify`` is called with the progress of noise floors that a
    user-built reference lacks.

    Returns:
        ``{"task", "n", "read", "n_judged", "verdict", "judged_by", "reason", "chains", "metrics": [...]}``: JSON types only; null
        where a number is missing. Values and equivalent sample sizes are of all n samples, or of 5,000 evenly thinned
        ones; floors, ratios and tests are of the ``n_judged`` ones, the next smaller size with floors (a metric's own
        ``n_judged`` where it has floors of smaller sizes only), and by the metrics ``judged_by``; ``reason`` names
        coordinates that ``worst_coordinate`` distinguishes. Chains are judged by no more samples than they are worth, the
        bulk ESS of the worst coordinate. Copies of rows and of chains count once (``read`` says so), and metrics of nearest
        neighbours are left out where rows repeat.

    Raises:
        ShapeError: the samples are no finite (n, D) or (C, T, D) array.
        DataMissingError: the task's data set is not on disk.
        InputError: the task has the name of a built-in one and differs from it; or the numbers are too coarse.
    """
    registry.require_own_name(task)
    path, every = _chains(samples, task)
    copies, path, every = counted(every if path is None else path)
    labels = (n for n in (names, getattr(task, "coordinates", ())) if len(n) == task.dim)
    names = next(labels, [f"x{i + 1}" for i in range(task.dim)])
    chains, worth = None if path is None else chain_diagnostics(path, names), len(every)
    if chains is not None:
        chains["worth"] = int(chains["worth"] * copies.counted.mean())
        worth = min(worth, chains["worth"])
    x, given, reference = thin(every, MOST_SAMPLES), reference, reference or task.reference()
    floored = given or with_floors(task, task.floored(), min(worth, len(x)), notify)
    certified = floored.floors if isinstance(floored, Predictions) else ()
    listed = tuple(dict.fromkeys((*task.metrics, *certified))) if metrics is None else metrics
    steps = None if path is None else path.transpose(0, 1)[None]
    predictive = task.predictive([0], "cpu", torch.float64)
    context = Context(task, reference, density_of(task), predictive, path=steps, cost=cost)
    _require_digits(every, reference, names)
    measured, absent = compute_guarded(listed, x[None], context)
    if copies.repeats:
        absent |= {name: f"left out, since rows repeat: {copies.said}" for name in NEAREST if name in measured}
    values = {name: float(value[0]) for name, value in measured.items() if name not in absent}
    n, judged, broken, tests = _tested(values, every, len(x), worth, context, floored)
    if floored is None and context.target is not None and "ksd" in listed:
        n, judged, tests = _bootstrap_test(thin(every, min(worth, _BOOTSTRAP_SAMPLES)), context.target)
    why = _DEPENDENT if chains is not None or serially_correlated(x) else ""
    rows = {name: _row(name, v, judged.get(name), len(x), floored, tests, why) for name, v in values.items()}
    for name, reason in broken.items():
        rows[name]["reason"] = reason
    return {
        "task": task.name,
        "n": math.prod(np.shape(samples)[:-1]),
        "read": copies.said,
        "n_judged": n,
        "verdict": tests.verdict,
        "judged_by": list(tests.floors),
        "reason": _reason(tests, every, context, names, worth, chains is not None),
        "chains": chains,
        "metrics": [rows[name] if name in rows else _absent(name, absent[name]) for name in listed],
    }


def _reason(tests: FloorTests, every: Tensor, context: Context, names: Sequence[str], worth: int, chains: bool) -> str:
    """That of the tests, or the worst coordinates; before it, that chains are ``worth`` too few draws."""
    reason = tests.reason
    if tests.adjusted.get(worst := "worst_coordinate", 1.0) <= ALPHA:
        floor = tests.floors[worst]
        reason = worst_named(thin(every, floor.n), context, names, floor.quantile(1 - ALPHA))
    if chains and worth < min(SIZES):
        reason = f"the chains are worth {worth} independent draws, fewer than {min(SIZES)}: {reason}"
    return reason


def _tested(
    values: Mapping[str, float], every: Tensor, size: int, worth: int, context: Context, floored: Floored | None
) -> tuple[int | None, dict[str, float], dict[str, str], FloorTests]:
    """The size judged, values at the sizes of the floors, metrics that say nothing and why, and the tests.

    ``values`` are of ``size`` of the samples, which are worth so many independent draws.
    """
    n = judged_size(min(worth, size), floored)
    sizes, judged = sizes_judged(n or 0, floored, values), dict(values)
    for smaller in set(sizes.values()) - {size}:
        judged |= values_of([name for name, own in sizes.items() if own == smaller], thin(every, smaller), context)
    x, broken = thin(every, size), dict[str, str]()
    for name in () if floored is None else floored.certificate.get("without_floor", ()):
        broken[name] = "not computed: of the reference a coordinate has one value, or rows repeat"
    if still := int((x == x[0]).all(0).sum()):
        broken["correlation_error"] = f"not computed: {still} coordinates of the samples never vary"
    broken = {name: reason for name, reason in broken.items() if name in values}
    judged = {name: value for name, value in judged.items() if name not in broken}
    return n, judged, broken, floor_tests(judged, n or worth, floored, context.task.metrics, sizes)


def _require_digits(x: Tensor, reference: Reference | None, names: Sequence[str]) -> None:
    """Refuse samples, or rows, in a precision whose numbers near the target's mean are over a hundredth of its sds apart."""
    if reference is None:
        return
    for what, values in (("samples", x), ("reference", reference.draws)):
        eps = torch.where(
            (values.float() == values).all(0), torch.finfo(torch.float32).eps, torch.finfo(values.dtype).eps
        )
        steps = eps * reference.mean.abs() / reference.sd
        if (coarse := (steps > 0.01) & (reference.sd > 0)).any():
            i = int(coarse.nonzero()[0])
            raise InputError(
                f"{names[i]}: numbers near {reference.mean[i]:.4g} in the precision of the {what} are {steps[i]:.2g} standard "
                "deviations apart; give more digits, or subtract the same offset from samples and reference"
            )


def _chains(samples: Any, task: Task) -> tuple[Tensor | None, Tensor]:
    """Samples as chains (C, T, D), or None for a plain set, and as rows (n, D)."""
    shape = np.shape(samples)
    if len(shape) != 3:
        return None, check_samples(samples, task)
    every = check_samples(torch.as_tensor(samples, dtype=torch.float64).flatten(0, 1), task)
    return every.reshape(shape), every


def counted(x: Tensor) -> tuple[Copies, Tensor | None, Tensor]:
    """Copies among samples, (n, D) or (C, T, D); the chains that are none, or None for a plain set; and the rows that count."""
    copies = find_copies(x)
    path = x[copies.chains] if x.dim() == 3 else None
    rows = x if path is None else path.flatten(0, 1)
    return copies, path, rows[torch.from_numpy(copies.counted.ravel())] if copies.repeats else rows


def chain_diagnostics(chains: Tensor, names: Sequence[str] = ()) -> dict[str, Any] | None:
    """Per coordinate of chains (C, T, D): rank-normalised R-hat, bulk and tail ESS; None where they are too short.

    ``worth`` is the bulk ESS of the slowest that moves (``_worth``). A coordinate that never moves has ESS 0 and no R-hat.
    """
    if chains.shape[1] < 2 * FEWEST_DRAWS:
        return None
    x, axes = chains.numpy(), {"chain_axis": 0, "draw_axis": 1}
    moves = np.ptp(x, axis=(0, 1)) > 0
    # One chain is compared with itself: its halves.
    halves = x if len(x) > 1 else np.stack([x[0, : x.shape[1] // 2], x[0, -(x.shape[1] // 2) :]])
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = array_stats().rhat(halves, method="rank", **axes)
        bulk = np.where(moves, array_stats().ess(x, method="bulk", **axes), 0.0)
        tail = np.where(moves, array_stats().ess(x, method="tail", prob=TAILS, **axes), 0.0)
    shown = list(names) if len(names) == x.shape[2] else [f"x{i + 1}" for i in range(x.shape[2])]
    return {
        "chains": x.shape[0],
        "draws": x.shape[1],
        "names": shown,
        "rhat": [to_json_number(float(f"{v:.5g}")) for v in rhat],
        "ess_bulk": [round(float(v), 1) for v in bulk],
        "ess_tail": [round(float(v), 1) for v in tail],
        "worth": _worth(x[..., moves], bulk[moves]) if moves.any() else 0,
    }


def _worth(x: NDArray[np.float64], bulk: NDArray[np.float64]) -> int:
    """Bulk ESS of the slowest coordinate of chains (C, T, D), without the bias of the smallest of many estimates.

    The noise s of a log ESS is seen in the halves of the chains. Of the k coordinates within 2 z(D) s of the smallest,
    z(k) being the mean of the largest of k normal numbers, the smallest is z(k) s too low.
    """
    logs, half = np.log(bulk), x.shape[1] // 2
    z = special.ndtri((np.arange(1, len(logs) + 1) - 0.375) / (np.arange(1, len(logs) + 1) + 0.25))  # Blom (1958)
    if len(logs) < 2 or half < 2 * FEWEST_DRAWS:
        return int(bulk.min())
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = x[:, :half], x[:, half:]
        halves = [array_stats().ess(part, method="bulk", chain_axis=0, draw_axis=1) for part in parts]
        noise = min(float(np.std(np.log(halves[0] / halves[1]), ddof=1)) / 2, 0.25)
    if not noise > 0:  # also where a half does not move
        return int(bulk.min())
    near = int((logs <= logs.min() + 2 * z[-1] * noise).sum())
    return int(bulk.min() * math.exp(z[near - 1] * noise))


def _bootstrap_test(x: Tensor, target: Target) -> tuple[int, dict[str, float], FloorTests]:
    """The test of samples (n, D) by KSD alone; nothing is called indistinguishable by it."""
    if len(x) < min(SIZES):
        reason = (
            f"no reference, and {len(x)} independent samples are too few for KSD's bootstrap, which takes {min(SIZES)}"
        )
        return len(x), {}, FloorTests({}, {}, {}, "not applicable", reason)
    value, values = bootstrapped_ksd(x, target, _BOOTSTRAP_VALUES, Generator().manual_seed(0))
    floor = Floor(len(x), values)
    p = p_value("ksd", value, floor)
    verdict = "distinguishable" if p <= ALPHA else "not applicable"
    return len(x), {"ksd": value}, FloorTests({"ksd": floor}, {"ksd": p}, {"ksd": p}, verdict, BLIND)


def _row(
    name: str, value: float, judged: float | None, n: int, reference: Floored | None, tests: FloorTests, dependent: str
) -> dict[str, Any]:
    """One metric's row; without a floor at the size judged the value is all."""
    row = _absent(name, "no floor: the value stands alone") | {"value": to_json_number(value)}
    floors = {} if reference is None else reference.floors.get(name, {})
    if reference is not None and floors:
        size, interval, reason = equivalent_sample_size(name, value, n, reference)
        if interval is not None and dependent:
            interval, reason = None, reason or dependent
        row |= {
            "equivalent_sample_size": size,
            "equivalent_sample_size_interval": None if interval is None else list(interval),
            "reason": reason,
        }
    if name not in tests.floors or judged is None:
        sizes = ", ".join(str(n) for n in verdict_sizes(reference) if n in floors)
        return row | {"reason": f"floors are known at n = {sizes} only"} if floors else row
    floor, p, adjusted = tests.floors[name], tests.p_values[name], tests.adjusted[name]
    return row | {
        "n_judged": floor.n,
        "judged": to_json_number(judged),
        "floor": {"median": floor.median, "q95": floor.quantile(0.95)},
        "ratio": to_json_number(judged / floor.median) if load_metric(name).floor_ratio else None,
        "p_value": p,
        "p_adjusted": adjusted,
        "verdict": "distinguishable" if adjusted <= ALPHA else "indistinguishable",
    }


def _absent(name: str, reason: str) -> dict[str, Any]:
    return {"metric": name, **dict.fromkeys(_NUMBERS), "verdict": "not applicable", "reason": reason}


def serially_correlated(x: Tensor) -> bool:
    """Whether neighbouring rows of (n, D) samples are correlated, as a chain's are: at 0.1%, over all coordinates."""
    x = x[:, (x != x[0]).any(0)]
    n, dim = x.shape
    if not dim:
        return False
    ranks = torch.from_numpy(np.apply_along_axis(average_ranks, 0, x.numpy()))
    centred = ranks - ranks.mean(0)
    lag = (centred[1:] * centred[:-1]).sum(0) / centred.square().sum(0)
    return bool((lag * math.sqrt(n) > -special.ndtri(1e-3 / dim)).any())
