"""What ``show`` and ``doctor`` tell: plain dictionaries, ready for a table or JSON."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.metrics.power import SIZE, power_rows


def task(name: str) -> dict[str, Any]:
    """Facts, protocol and certificate of a task.

    Raises:
        UnknownNameError: with near names.
    """
    found = registry.load_task(name)
    reference = found.floored()
    facts = found.facts
    document: dict[str, Any] = {
        "name": found.name,
        "version": found.version,
        "summary": found.summary,
        "about": (type(found).__doc__ or "").strip(),
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
        document["mean"] = facts.mean.tolist()
        document["sd"] = facts.sd.tolist()
    if facts.modes is not None:
        document["modes"] = len(facts.modes.weights)
    if facts.constants:
        document["constants"] = dict(facts.constants)
    if found.departures:
        numbered = enumerate(found.departures, 1)
        document["departs from the plain task"] = {str(i): text for i, text in numbered}
    if found.data:
        document["data sets"] = list(found.data)
    if reference is None:
        document["reference"] = "none: judged by held-out rows" if "predictive" in found.provides else "none"
    else:
        hidden = ("floors", "v_statistics", "mean", "sd", "correlations", "mcse_mean", "mcse_sd")
        document["reference"] = {k: v for k, v in reference.certificate.items() if k not in hidden}
    return document


def algorithm(name: str) -> dict[str, Any]:
    """Settings, needs and citation of an algorithm.

    Raises:
        UnknownNameError: with near names.
    """
    found = registry.load_method(name)
    module = sys.modules[type(found).__module__]
    settings = {
        key: f"{field.default!r} - {field.description or ''}"
        for key, field in found.settings_type.model_fields.items()
    }
    return {
        "name": found.name,
        "version": found.version,
        "summary": found.summary,
        "citation": found.citation,
        "kind": found.kind,
        "needs": sorted(found.needs),
        "chains": found.n_particles or "as the suite says",
        "settings (default - meaning)": settings,
        "presets": {
            preset: ", ".join(f"{key}={value!r} ({source})" for key, (value, source) in values.items())
            for preset, values in found.presets.items()
        }
        or "none",
        "about": (module.__doc__ or "").strip(),
    }


def metric(name: str) -> dict[str, Any]:
    """Formula, unit and need of a metric, and what it can see.

    Raises:
        UnknownNameError: with near names.
    """
    found = registry.load_metric(name)
    compute = found.compute.func if isinstance(found.compute, functools.partial) else found.compute
    rows = power_rows(name).dropna(how="all")
    power = {
        str(alteration): " / ".join("-" if math.isnan(v) else f"{100 * v:.0f}%" for v in shares)
        for alteration, shares in zip(rows.index, rows.to_numpy(), strict=True)
    }
    dims = " / ".join(str(d) for d in rows.columns)
    studied = (
        {f"called distinguishable at n = {SIZE}, in dimensions": dims, **power} if power else "not studied"
    )
    return {
        "name": found.name,
        "summary": found.summary,
        "unit": found.unit,
        "better": found.direction,
        "needs": found.need,
        "measured": "at every checkpoint" if found.when == "every" else "at the last checkpoint",
        "about": inspect.getdoc(compute) or "",
        "power": studied,
    }


def doctor() -> list[dict[str, Any]]:
    """Checks of the installation: what, found, ok, required."""
    checks = [_check("Python", platform.python_version(), sys.version_info >= (3, 11))]
    for package in (
        "torch",
        "numpy",
        "scipy",
        "POT",
        "arviz-stats",
        "pyro-ppl",
        "mlflow",
        "pandas",
        "seaborn",
    ):
        try:
            checks.append(_check(package, version(package), True))
        except PackageNotFoundError:
            checks.append(_check(package, "not installed", False))
    return [*checks, *_registry_checks(), _device_check(), _data_check(), _disk_check(), _tracking_check()]


def _check(what: str, found: str, ok: bool, required: bool = True) -> dict[str, Any]:
    return {"what": what, "found": found, "ok": ok, "required": required}


def _registry_checks() -> list[dict[str, Any]]:
    """Every registered name loads, every reference matches its certificate."""
    broken = []
    for name in registry.tasks():
        try:
            registry.load_task(name).floored()
        except ParVIBenchError as error:
            broken.append(f"{name}: {error}")
    for name in registry.algorithms():
        try:
            registry.load_method(name)
        except ParVIBenchError as error:
            broken.append(f"{name}: {error}")
    count = f"{len(registry.tasks())} tasks, {len(registry.algorithms())} algorithms load"
    return [_check("registry", "; ".join(broken) or count, not broken)]


def _device_check() -> dict[str, Any]:
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        return _check("GPU", torch.cuda.get_device_name(), True, required=False)
    return _check("GPU", f"none; {os.cpu_count()} CPUs will be used", False, required=False)


def _data_check() -> dict[str, Any]:
    from parvibench.data.fetch import status

    rows = status()
    present = sum(r.state == "ok" for r in rows)
    hint = "" if present == len(rows) else "; fetch the others with: parvibench data fetch"
    return _check("data sets", f"{present} of {len(rows)} here{hint}", present == len(rows), required=False)


def _disk_check() -> dict[str, Any]:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    return _check("free disk here", f"{free:.1f} GiB", free > 1, required=False)


def _tracking_check() -> dict[str, Any]:
    from parvibench.harness.store.secrets import without_secrets

    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    return _check("tracking", without_secrets(uri) or "embedded SQLite in the store", True, required=False)
