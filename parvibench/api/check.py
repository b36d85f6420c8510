"""``check``: samplers against known truth and a baseline; ``record``: the baseline; ``calibrate``: on a model of the user's."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parvibench.checks import output as output
from parvibench.checks import rounds
from parvibench.checks.questions import simulated_data
from parvibench.checks.questions.simulated_data import Calibrated
from parvibench.checks.rounds import Findings as Findings
from parvibench.checks.selection import outside_questions, select_questions
from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, Exact
from parvibench.core.errors import InputError
from parvibench.targets.generative import generative

if TYPE_CHECKING:
    from parvibench.checks.baseline import Baseline

#: Iterations of an unregistered sampler, and the seed of its tests.
ITERATIONS, SEED = 500, 1
#: Called with a name and the numbers of answered and of all questions.
Notify = Callable[[str, int, int], None]
#: Called with a question that fails and its clearest failed test.
Red = Callable[[Any, Any], None]
_silent: Notify = lambda text, done, total: None  # noqa: E731


def check(
    sampler: str | Algorithm | type[Algorithm] | Sequence[str] | None = None,
    *,
    tasks: Sequence[str] = (),
    baseline: str | Path | None = None,
    iterations: int = ITERATIONS,
    allow_diverged: float = 0.0,
    exact: Exact | None = None,
    seed: int | None = None,
    workers: int = 0,
    each: Mapping[str, Mapping[str, Any]] | None = None,
    fail_fast: bool = False,
    stoppable: bool = False,
    red: Red = lambda question, test: None,
    notify: Notify = _silent,
    **settings: Any,
) -> Findings:
    """Test samplers against known truth and the contract; without one, every built-in method, as ``parvibench check``.

    Args:
        sampler: a name, ``module:Class``, ``file.py:Class``, an object or a class; or several names.
        tasks: with a baseline, on which samplers run; otherwise targets of the tests, or unregistered tasks to be tested.
        baseline: file with recorded results, for a comparison with them.
        iterations: of a sampler that is not built in, or has settings of its own: enough for targets of scale 1/2.
        allow_diverged: share of the points of such a sampler that may be non-finite.
        exact: claim about its kernel, by default that of its class: True, ``invariant``, ``adapted`` or False.
        seed: of all fresh replicates; by default 1 for unregistered samplers, otherwise random; the result has it.
        workers: number of processes; 0 runs in this one, as objects that cannot be imported always do.
        each: settings by the name of a sampler, where there are several.
        fail_fast: stop at the first question that fails.
        stoppable: Ctrl-C and SIGTERM end the check with the answers so far (``unanswered`` lists the other questions).
        red: called with a question as soon as it fails, and with its clearest failed test.
        notify: called with a name and the numbers of answered and of all questions.
        settings: of the sampler.

    Returns:
        ``verdict`` (``pass``, ``wrong`` or ``not converged``; with a baseline also ``regression`` or ``changed``),
        ``tests``, ``red`` (those that failed), ``seed``.

    Raises:
        InputError: an unknown name, setting or baseline.
    """
    how: dict[str, Any] = {"fail_fast": fail_fast, "stoppable": stoppable, "red": red}
    if isinstance(sampler, Algorithm | type):
        from .plan import named_methods  # plans and baselines load pandas, which other checks do not need

        (entry,), held = named_methods([sampler])
        assert isinstance(entry, dict)
        if held:  # measured here, and known by no name
            if baseline is not None or tasks:
                raise InputError(f"{entry['label']}: for tasks or a baseline, define it in a module or a file")
            questions = outside_questions(held[0], settings, iterations, allow_diverged, exact)  # type: ignore[arg-type]
            return rounds.check(questions, seed=SEED if seed is None else seed, notify=notify, **how)
        names = [str(entry["name"])]
    else:
        names = [sampler] if isinstance(sampler, str) else list(sampler or ())
    if settings and len(names) != 1:
        raise InputError("settings apply to one sampler: name it, or give settings by name (each={'mala': {...}})")
    chosen = select_questions(
        algorithms=names, tasks=tasks, settings={**(each or {}), **({names[0]: settings} if settings else {})},
        iterations=iterations, allow_diverged=allow_diverged, baseline=baseline is not None, exact=exact,
    )  # fmt: skip
    asked = chosen.resolve(None if baseline is None else Path(baseline))
    findings = rounds.check(asked.questions, seed=_root(seed, names), workers=workers, notify=notify, **how)
    if baseline is None:
        return findings
    from parvibench.checks import baseline as baselines

    sees = baselines.smallest_losses(asked.questions, rounds.Plan())
    return replace(findings, new=asked.new, incomparable=asked.incomparable, baseline=str(baseline), sees=sees)


def _root(seed: int | None, names: Sequence[str]) -> int:
    if seed is None and names and all(map(registry.is_elsewhere, names)):
        return SEED
    return secrets.randbelow(2**31) if seed is None else seed


def record(
    samplers: Sequence[str],
    baseline: Path,
    *,
    tasks: Sequence[str] = (),
    each: Mapping[str, Mapping[str, Any]] | None = None,
    iterations: int = ITERATIONS,
    seed: int | None = None,
    workers: int = 0,
    notify: Notify = _silent,
) -> tuple[Baseline, list[str] | None]:
    """Clean replicates of samplers for a baseline, and what differs from the file that is there; arguments as of ``check``."""
    from parvibench.checks import baseline as baselines

    old = baselines.Baseline.load(baseline) if baseline.is_file() else None
    chosen = select_questions(algorithms=samplers, tasks=tasks, settings=each, iterations=iterations, baseline=True)
    date = f"{dt.date.today():%Y-%m-%d}"
    made = baselines.make(chosen.cells(old), seed=_root(seed, samplers), date=date, workers=workers, notify=notify)
    return (made, None) if old is None else baselines.replaced(old, made)


def calibrate(
    model: Any,
    algorithm: str | Algorithm | type[Algorithm],
    *,
    settings: Mapping[str, Any] | None = None,
    simulator: str | Path | None = None,
    out: str | Path | None = None,
    notify: Notify = _silent,
    **plan: Any,
) -> Calibrated:
    """Simulation-based calibration of a sampler or a fitted family on your own model.

    Args:
        model: a task of ``pb.from_numpyro``, ``from_pyro`` or ``from_pymc``, which brings prior and simulator itself; one of
            ``pb.from_stan``; an object with three functions, ``prior(rng) -> params``, ``simulate(params, rng) -> data``,
            ``model(data) -> task``; or ``file.py:OBJECT``, ``model.stan:data.json``.
        algorithm: a name, ``module:Class``, ``file.py:Class``, an object or a class.
        settings: of the algorithm.
        simulator: of a Stan program: a second one without parameters, whose generated quantities draw parameters and data by their names.
        out: folder of ``calibration.json`` (data sets done so far, from which an interrupted run goes on) and ``ranks.png``; default none.
        notify: called with a text, the data sets done and the most.
        plan: ``sets`` (500) at most, ``level`` (0.01) of a false alarm, ``chains`` (4), ``evaluations`` (2,000) of a chain, ``batch`` (50)
            data sets side by side, ``seed`` (1).

    Raises:
        InputError: the model cannot draw data, a plan or setting is wrong.

    >>> outcome = calibrate(model, "nuts", sets=200)  # doctest: +SKIP
    >>> outcome.right, outcome.faults  # doctest: +SKIP
    """
    method: Any = registry.load_algorithm(algorithm) if isinstance(algorithm, str) else registry.as_method(algorithm)
    name, source = "model", ""
    if isinstance(model, str):
        file, _, name = model.partition(":")
        source = hashlib.sha256(Path(file).read_bytes()).hexdigest() if Path(file).is_file() else ""
        model = registry.load_task(model) if ".stan" in file else registry.load_object(model)
    if simulator is not None:
        source += hashlib.sha256(Path(simulator).read_bytes()).hexdigest()
    try:
        chosen = simulated_data.Plan(**plan)
    except TypeError:
        unknown = ", ".join(set(plan) - set(simulated_data.Plan.__dataclass_fields__))
        raise InputError(
            f"calibrate has no {unknown}; a plan has {', '.join(simulated_data.Plan.__dataclass_fields__)}"
        ) from None
    folder = None if out is None else Path(out)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    outcome = simulated_data.calibrate(
        generative(model, name, simulator), method, dict(settings or {}), chosen,
        None if folder is None else folder / "calibration.json", source, notify,
    )  # fmt: skip
    if folder is not None and outcome.ranks.u:
        outcome.draw(folder / "ranks.png")
    return outcome
