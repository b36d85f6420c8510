"""Verifying references: the shipped ones hold, tampered ones and a changed density do not."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.registry import has_reference, load_task
from parvibench.reference.build import default_folder
from parvibench.reference.checks import largest_z, verify, z_limit

SHIPPED = [name for name in registry.tasks() if has_reference(name)]


@pytest.mark.ci
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_references_hold(name: str) -> None:
    failed = [c for c in verify(load_task(name)) if c.passed is False]
    assert not failed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for suffix in ("npz", "json"):
        shutil.copy(default_folder() / f"banana.{suffix}", tmp_path)
    return tmp_path


def failures(folder: Path) -> set[str]:
    return {c.name for c in verify(load_task("banana"), folder) if c.passed is False}


def forge(folder: Path, **arrays: Any) -> None:
    """Replace arrays, and the hash in the certificate with them."""
    draws, certificate = folder / "banana.npz", folder / "banana.json"
    with np.load(draws) as stored:
        kept = dict(stored)
    np.savez_compressed(draws, **kept | arrays)
    known = json.loads(certificate.read_text())
    certificate.write_text(json.dumps(known | {"sha256": hashlib.sha256(draws.read_bytes()).hexdigest()}))


def test_a_copy_holds_and_an_edited_or_truncated_file_does_not(folder: Path) -> None:
    assert failures(folder) == set()
    draws = folder / "banana.npz"
    content = draws.read_bytes()
    draws.write_bytes(content[: len(content) // 2])
    assert failures(folder) == {"files"}
    draws.unlink()
    assert failures(folder) == {"files"}


def test_forged_draws_are_found_though_the_hash_fits(folder: Path) -> None:
    with np.load(folder / "banana.npz") as stored:
        x = stored["draws"]
    forge(folder, draws=x + np.float32([0.1, 0.0]))
    assert {"means", "density"} <= failures(folder)
    forge(folder, draws=x * np.float32([1.0, 0.95]))
    assert {"standard deviations", "bandwidth", "kernel mean"} <= failures(folder)


def test_forged_floors_are_found(folder: Path) -> None:
    forge(folder, **{"w2/100": np.linspace(0.1, 0.2, 300)})
    assert failures(folder) == {"floors"}


def test_a_changed_density_is_found() -> None:
    """A mode that moves by a hundredth: the draws cannot tell, the recorded scores do."""
    task = load_task("multimodal")
    moved = replace(task.mixture, means=task.mixture.means + torch.tensor([0.01, 0.0]))
    checks = {c.name: c.passed for c in verify(replace(task, mixture=moved))}
    assert checks["density"] is False
    assert checks["files"]
    newer = {c.name: c.passed for c in verify(replace(task, version=task.version + 1))}
    assert newer["task version"] is False


def test_a_task_without_reference() -> None:
    with pytest.raises(InputError, match="nothing to verify"):
        verify(load_task("bnn-concrete"))


def test_limits_are_bonferronis() -> None:
    assert z_limit(1) == pytest.approx(2.5758, abs=1e-4)
    assert z_limit(10) == pytest.approx(3.2905, abs=1e-4)
    assert z_limit(2048, 152) == pytest.approx(4.7407, abs=1e-4)  # Student's


def test_few_skew_draws_are_judged_at_the_level_that_is_named() -> None:
    """Terms 1 - chi^2, as of Stein's identity: at 1% more than 4 of 40 sets fail in one case of 20,000."""
    terms = 1 - torch.randn(40, 152, 2048, generator=torch.Generator().manual_seed(0)).square()
    assert sum(not largest_z("skew", one).passed for one in terms) <= 4
    terms[0, :, 7] += 1.2
    assert not largest_z("off", terms[0]).passed
