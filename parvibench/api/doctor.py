"""``doctor``: versions, optional extras, registry, devices, data, disk and tracking of this installation."""

import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from parvibench.core import registry
from parvibench.core.certified import verified
from parvibench.core.errors import InputError, ParVIBenchError, install_hint
from parvibench.data.fetch import status
from parvibench.harness.store.secrets import shown_address

_PACKAGES = ("torch", "numpy", "scipy", "POT", "arviz-stats", "pyro-ppl", "mlflow", "pandas", "seaborn")
#: Drivers of GPUs on Linux, of NVIDIA, WSL and AMD; without one PyTorch is not imported to look for a GPU.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
#: Extras for work on this package itself.
_DEVELOPMENT = ("dev", "docs")


def doctor() -> list[dict[str, Any]]:
    """Check the installation: one dictionary per check, with ``what``, ``found``, ``ok`` and ``required``."""
    python = _check("Python", platform.python_version(), sys.version_info >= (3, 11))
    packages = [_check(p, _installed(p) or "not installed", bool(_installed(p))) for p in _PACKAGES]
    return [python, *packages, *_extras(), _registry(), *_surroundings()]


def _check(what: str, found: str, ok: bool, required: bool = True) -> dict[str, Any]:
    return {"what": what, "found": found, "ok": ok, "required": required}


def _extras() -> Iterator[dict[str, Any]]:
    """Which optional extras are installed, as the package declares them."""
    packages: dict[str, list[str]] = {}
    for line in requires("parvibench") or ():
        needed, _, marker = line.partition(";")
        named = re.search(r"""extra == ['"]([^'"]+)""", marker)
        if named is not None and named[1] not in _DEVELOPMENT:
            packages.setdefault(named[1], []).append(re.split(r"[^\w.-]", needed, maxsplit=1)[0])
    for extra, names in packages.items():
        found = {name: _installed(name) for name in names}
        ok = all(found.values())
        words = ", ".join(f"{name} {there or 'not installed'}" for name, there in found.items())
        yield _check(f"extra {extra}", words if ok else f"{words}; {install_hint(extra)}", ok, required=False)


def _installed(package: str) -> str:
    """The version of a package; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _registry() -> dict[str, Any]:
    """Every built-in module is there, and every reference matches its certificate; names of other packages load."""
    broken = []
    for rows, load in ((registry.tasks(), registry.load_task), (registry.algorithms(), registry.load_method)):
        for name, row in rows.items():
            try:
                if not row.built_in:
                    load(name)
                elif importlib.util.find_spec(row.target.partition(":")[0]) is None:
                    raise InputError(f"no module {row.target.partition(':')[0]}: reinstall the package")
                verified(name)
            except ParVIBenchError as error:
                broken.append(f"{name}: {error}")
    count = f"{len(registry.tasks())} tasks, {len(registry.algorithms())} algorithms, references as certified"
    return _check("registry", "; ".join(broken) or count, not broken)


def _surroundings() -> Iterator[dict[str, Any]]:
    """The GPU, data sets, disk and tracking: what runs can do without."""
    name = ""
    if sys.platform == "win32" or any(Path(driver).exists() for driver in _DRIVERS):
        cuda = importlib.import_module("torch").cuda
        name = cuda.get_device_name() if cuda.is_available() else ""
    yield _check("GPU", name or f"none; {os.cpu_count()} CPUs", bool(name), required=False)
    rows = status()
    present = sum(r.state == "ok" for r in rows)
    hint = "" if present == len(rows) else "; `parvibench data fetch` downloads the others"
    yield _check("data sets", f"{present} of {len(rows)} on disk{hint}", present == len(rows), required=False)
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    yield _check("free disk space", f"{free:.1f} GiB", free > 1, required=False)
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    yield _check("tracking", shown_address(uri) or "SQLite in the store", True, required=False)
