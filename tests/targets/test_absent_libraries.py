"""Without a library each door names the extra that brings it."""

import importlib
from pathlib import Path
from typing import Any

import pytest

import parvibench as pb
from parvibench.core.errors import LibraryMissingError


def hide(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def absent(module: str, *args: Any, **options: Any) -> Any:
        if module.partition(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(module, *args, **options)

    monkeypatch.setattr(importlib, "import_module", absent)


@pytest.mark.parametrize(
    ("door", "library", "extra"),
    [
        ("from_jax", "jax", "jax"), ("from_numpyro", "jax", "jax"), ("from_numpyro", "numpyro", "jax"),
        ("from_pymc", "jax", "pymc"), ("from_pymc", "pymc", "pymc"), ("from_stan", "stanli", "stan"),
        ("from_stan", "bridgestan", "stan"),
    ],
)  # fmt: skip
def test_doors_name_the_extra(
    door: str, library: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.stan").write_text("parameters { real x; } model { x ~ std_normal(); }")
    given = {"from_jax": (lambda x: x, 1), "from_stan": (tmp_path / "own.stan",)}.get(door, (lambda x: x,))
    hide(library, monkeypatch)
    with pytest.raises(LibraryMissingError, match=rf"\w+ is not installed; .*pip install '.\[{extra}\]'"):
        getattr(pb, door)(*given)


def test_a_kernel_without_jax_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide("jax", monkeypatch)
    kernel = pb.jax_sampler(lambda log_density, dim: None, name="mine")
    options = {"workers": 0, "out": tmp_path, "tracking": False, "budget": {"iterations": 3}, "replicates": 1}
    (cell,) = pb.run(tasks=["banana"], algorithms=[kernel], **options).cells
    assert cell.status == "skipped"
    assert "pip install '.[jax]'" in cell.reason
