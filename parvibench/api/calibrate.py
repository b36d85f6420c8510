"""``calibrate``: is this sampler right for my model? Ranks over data sets simulated from the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parvibench.core import registry
from parvibench.core.errors import InputError

if TYPE_CHECKING:
    from parvibench.checks.simulated_data import Calibrated
    from parvibench.core.algorithm import Algorithm

#: Called with a text and the numbers of data sets done and of the most.
Notify = Callable[[str, int, int], None]


def calibrate(
    model: Any,
    algorithm: str | Algorithm | type[Algorithm],
    *,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    notify: Notify = lambda text, done, total: None,
    **plan: Any,
) -> Calibrated:
    """Simulation-based calibration of a sampler or a fitted family on your own model.

    Args:
        model: a task of ``pb.from_numpyro``, which brings prior and simulator itself, or an object with three functions,
            ``prior(rng) -> params``, ``simulate(params, rng) -> data``, ``model(data) -> task``; or ``file.py:OBJECT``.
        algorithm: a name, ``module:Class``, ``file.py:Class``, an object or a class.
        settings: of the algorithm.
        out: folder of ``calibration.json`` (data sets done so far, from which an interrupted run goes on) and ``ranks.png``; default none.
        notify: called with a text, the data sets done and the most.
        plan: ``sets`` (500) at most, ``level`` (0.01) of a false alarm, ``chains`` (4), ``evaluations`` (2,000) of a chain, ``batch`` (50)
            data sets side by side, ``seed`` (1).

    Raises:
        InputError: the model cannot draw data, a plan or setting is wrong.

    >>> outcome = calibrate(model, "nuts", sets=200)  # doctest: +SKIP
    >>> outcome.right, outcome.faults  # doctest: +SKIP
    """
    from parvibench.checks.simulated_data import Plan, digest
    from parvibench.checks.simulated_data import calibrate as run
    from parvibench.targets.generative import generative

    method: Any = registry.load_algorithm(algorithm) if isinstance(algorithm, str) else registry.as_method(algorithm)
    name, source = "model", ""
    if isinstance(model, str):
        file, _, name = model.partition(":")
        source = digest([Path(file)]) if Path(file).is_file() else ""
        model = registry.load_object(model)
    try:
        chosen = Plan(**plan)
    except TypeError:
        unknown = ", ".join(set(plan) - set(Plan.__dataclass_fields__))
        raise InputError(f"calibrate has no {unknown}; a plan has {', '.join(Plan.__dataclass_fields__)}") from None
    folder = None if out is None else Path(out)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    outcome = run(
        generative(model, name), method, dict(settings or {}), chosen,
        None if folder is None else folder / "calibration.json", source, notify,
    )  # fmt: skip
    if folder is not None and outcome.ranks.u:
        outcome.draw(folder / "ranks.png")
    return outcome
