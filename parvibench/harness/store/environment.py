"""What results depend on: versions, hardware, threads, allocator; never the environment variables."""

import contextlib
import functools
import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from parvibench.core import registry
from parvibench.core.errors import DataMissingError, InputError
from parvibench.harness.store.secrets import without_secrets

#: Large temporaries are not returned to the system; read by the C library at start.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
_PACKAGES = (
    "parvibench", "torch", "numpy", "scipy", "POT", "arviz-stats", "pyro-ppl", "mlflow", "pandas", "scikit-learn",
    "pyarrow", "pydantic", "ray",
)  # fmt: skip


def process_facts() -> dict[str, str]:
    """Threads, allocator and arithmetic of this process."""
    allocator = {k: os.environ[k] for k in ALLOCATOR if k in os.environ}
    products = torch.get_float32_matmul_precision()
    return {"threads": str(torch.get_num_threads()), "float32 products": products, **allocator}


@functools.cache
def hardware(device: str) -> str:
    """What the seconds were measured on."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, 1 thread a worker"


def provenance(command: str, device: str, tasks: Iterable[str] = ()) -> dict[str, Any]:
    """Versions, hardware, settings and the data of ``tasks`` behind a run; its command line without credentials."""
    import psutil

    packages = {}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            packages[package] = version(package)
    products = torch.get_float32_matmul_precision()
    facts: dict[str, Any] = {
        "command": without_secrets(command),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "memory MiB": psutil.virtual_memory().total // 2**20,
        "hardware": hardware(device),
        "packages": packages,
        "git": _git_state(),
        "determinism": {
            "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
            "cudnn deterministic": torch.backends.cudnn.deterministic,
            "cudnn benchmark": torch.backends.cudnn.benchmark,
            "float32 matmul precision": products,
            "TF32": products != "highest",
        },
        "data": _data_hashes(tasks),
    }
    if device == "cuda":
        facts["cuda"] = f"{torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"  # type: ignore[no-untyped-call]
    return facts


def _data_hashes(tasks: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the data sets and references behind tasks."""
    from parvibench.data.fetch import registry as data_sets

    found: dict[str, str] = {}
    for name in dict.fromkeys(tasks):
        with contextlib.suppress(InputError, DataMissingError):
            task = registry.load_task(name)
            found |= {d: data_sets()[d].sha256 for d in task.data if d in data_sets()}
            reference = task.reference()
            if reference is not None and "sha256" in reference.certificate:
                found[f"reference of {name}"] = str(reference.certificate["sha256"])
    return found


def _git_state() -> str:
    """Commit of the source tree the package is imported from, with ``+`` when it is changed; or empty."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(root), "describe", "--always", "--dirty=+"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return ""
