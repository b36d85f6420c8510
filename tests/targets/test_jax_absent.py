"""Without JAX each of its doors names the extra that brings it."""

import importlib
from pathlib import Path
from typing import Any

import pytest

import parvibench as pb
from parvibench.core.errors import LibraryMissingError


@pytest.mark.parametrize("name", ["from_jax", "from_numpyro"])
def test_doors_name_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def absent(module: str, *args: Any, **options: Any) -> Any:
        if module.partition(".")[0] in ("jax", "numpyro"):
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(module, *args, **options)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(LibraryMissingError, match=r"jax is not installed; .*pip install '.\[jax\]'"):
        getattr(pb, name)(lambda x: x, dim=1)


def test_a_kernel_without_jax_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def absent(module: str, *args: Any, **options: Any) -> Any:
        if module.partition(".")[0] == "jax":
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(module, *args, **options)

    monkeypatch.setattr(importlib, "import_module", absent)
    kernel = pb.jax_sampler(lambda log_density, dim: None, name="mine")
    options = {"workers": 0, "out": tmp_path, "tracking": False, "budget": {"iterations": 3}, "replicates": 1}
    (cell,) = pb.run(tasks=["banana"], algorithms=[kernel], **options).cells
    assert cell.status == "skipped"
    assert "pip install '.[jax]'" in cell.reason
