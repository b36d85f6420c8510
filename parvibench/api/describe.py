"""``show``: a task, an algorithm, a metric or a suite as a dictionary, for a table or JSON."""

import functools
import inspect
import sys
from typing import Any

from parvibench.core import registry
from parvibench.core.certified import verified

#: Parts of a certificate that are numbers by coordinate or sample size.
_HIDDEN = ("floors", "v_statistics", "mean", "sd", "correlations", "mcse_mean", "mcse_sd")


def task(name: str) -> dict[str, Any]:
    """Facts, protocol and certificate of a task; ``UnknownNameError`` for an unknown one."""
    document = registry.described("tasks", name)
    if document:
        found = verified(name)
        certificate = None if found is None else found.facts
    else:
        own = registry.load_task(name)
        document, reference = task_facts(own), own.floored()
        certificate = None if reference is None else reference.certificate
    judged = "none: judged by held-out rows" if "predictive" in document["provides"] else "none"
    shown = None if certificate is None else {k: v for k, v in certificate.items() if k not in _HIDDEN}
    return document | {"reference": judged if shown is None else shown}


def task_facts(found: Any) -> dict[str, Any]:
    """Facts and protocol of a task object."""
    facts = found.facts
    row = registry.tasks().get(found.name)
    document: dict[str, Any] = {key: getattr(found, key) for key in ("name", "version", "summary")} | {
        "about": _family(found, row.target) if row is not None and row.built_in else inspect.getdoc(type(found)) or "",
        "dim": found.dim,
        "tags": sorted(found.tags),
        "provides": sorted(found.provides),
        "citation": found.citation,
        "protocol": {
            "particles": found.particles,
            "batch size": found.batch_size or "all data",
            "training rows": found.rows or "no data",
        },
        "metrics": list(found.metrics),
        "primary metric": found.primary,
    }
    if found.dim <= 10 and facts.mean is not None and facts.sd is not None:
        document |= {k: [*map(_ten_digits, v.tolist())] for k, v in (("mean", facts.mean), ("sd", facts.sd))}
    where_known = {
        "modes": None if facts.modes is None else len(facts.modes.weights),
        "log Z": None if facts.log_z is None else _ten_digits(facts.log_z),
        "distances": "in units of the reference's standard deviations" if found.standardised else None,
        "constants": {k: _ten_digits(v) for k, v in facts.constants.items()} or None,
        "departs from the plain task": {str(i): text for i, text in enumerate(found.departures, 1)} or None,
        "data sets": list(found.data) or None,
    }
    return document | {key: value for key, value in where_known.items() if value is not None}


def _ten_digits(x: float) -> float:
    """The last digits differ between processors."""
    return float(f"{x:.10g}")


def _family(task: Any, target: str) -> str:
    """The docstrings of a task's class and of the modules of its family: densities and their sources."""
    own = target.partition(":")[0]
    package = own.rpartition(".")[0]
    classes = [c for c in type(task).__mro__ if c.__module__.startswith(f"{package}.")]
    modules = dict.fromkeys([own, *(c.__module__ for c in classes)])
    texts = (inspect.getdoc(part) for part in (*classes[:1], *(sys.modules[m] for m in modules)))
    return "\n\n".join(filter(None, texts))


def algorithm(name: str) -> dict[str, Any]:
    """Settings, needs and citation of an algorithm; ``UnknownNameError`` for an unknown one."""
    return registry.described("algorithms", name) or algorithm_facts(registry.load_method(name))


def algorithm_facts(found: Any) -> dict[str, Any]:
    """Settings, needs and citation of an algorithm object."""
    module = sys.modules[type(found).__module__]
    fields = found.settings_type.model_fields
    presets = {
        preset: ", ".join(f"{key}={value!r} ({source})" for key, (value, source) in values.items())
        for preset, values in found.presets.items()
    }
    recorded = "plain: values decide what follows" if found.host_bound else "replayed where that is faster"
    return {key: getattr(found, key) for key in ("name", "version", "summary", "citation", "kind")} | {
        "needs": sorted(found.needs),
        "steps under --compile": "a program of its own" if found.compiled_step() else recorded,
        "chains": found.n_particles or "set by the suite",
        "settings (default - meaning)": {k: f"{f.default!r} - {f.description or ''}" for k, f in fields.items()},
        "presets": presets or "none",
        "about": (module.__doc__ or "").strip(),
    }


def metric(name: str) -> dict[str, Any]:
    """Formula, unit, need and power of a metric; ``UnknownNameError`` for an unknown one."""
    from parvibench.metrics.power import SIZE, power_rows

    document = registry.described("metrics", name) or metric_facts(registry.load_metric(name))
    rows = power_rows(name)
    power = {a: " / ".join(f"{100 * share:.0f}%" for share in shares.values()) for a, shares in rows.items()}
    dims = " / ".join(map(str, rows.get("exact", ())))
    called = f"called distinguishable at n = {SIZE}, in dimensions"
    return document | {"power": {called: dims, **power} if power else "not studied"}


def metric_facts(found: Any) -> dict[str, Any]:
    """Formula, unit and need of a metric."""
    compute = found.compute.func if isinstance(found.compute, functools.partial) else found.compute
    return {
        "name": found.name,
        "summary": found.summary,
        "unit": found.unit,
        "better": found.direction,
        "needs": found.need,
        "measured": "at every checkpoint" if found.when == "every" else "at the last checkpoint",
        "about": inspect.getdoc(compute) or "",
    }


def suite(name: str) -> dict[str, Any]:
    """Tasks, algorithms, budget and settings of a suite; ``InputError`` for an unknown or malformed one."""
    from parvibench.harness.suite.suite import load_suite

    found = load_suite(name)

    def given(entry: Any) -> str:
        own = {k: v for k, v in entry.model_dump(exclude_none=True, exclude_defaults=True).items() if k != "settings"}
        hidden = ("name", "label", "task", "algorithm", "published")
        words = [f"{k}={v}" for k, v in {**own, **entry.settings}.items() if k not in hidden]
        return ", ".join([entry.name if entry.name != entry.display else "", *words]).strip(", ") or "defaults"

    contents: dict[str, Any] = {"tasks": [t.name for t in found.tasks]}
    contents |= {"algorithms": {a.display: given(a) for a in found.algorithms}}
    if found.rows:
        contents = {
            "rows": {r.title: given(r) for r in found.rows},
            "published": {r.title: [p.pointer for p in r.published] for r in found.rows if r.published},
            "cannot be compared": found.incomparable,
            "departs from the paper": list(found.departures),
        }
    tuned = {} if found.tuned is None else found.tuned.step_size
    document = {
        "name": found.name,
        "description": found.description,
        **contents,
        **{key: getattr(found, key) for key in ("replicates", "seed", "dtype")},
        "budget": "each row's own" if found.budget is None else found.budget.model_dump(exclude_none=True),
        "particles": found.particles or "the task's",
        "samples": found.samples or "as many as particles",
        "metrics": list(found.metrics or ()) or "the task's",
        "step sizes": "tuned" if tuned or any(p.tuned for p in found.profiles.values()) else "as given",
        "profiles": {
            k: ", ".join(f"{n}={v}" for n, v in p.model_dump(exclude_none=True, exclude={"tuned"}).items())
            for k, p in found.profiles.items()
        },
    }
    if found.tune is not None:
        document["tune"] = found.tune.model_dump(mode="json", exclude_none=True)
    if tuned:
        document["tuned step sizes"] = tuned
    return document
