"""Unmixing of recorded channels, on a recording that the tests make."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from task_laws import assert_score_is_gradient

from parvibench.core.errors import DataMissingError
from parvibench.core.registry import load_task

LENGTH = 300


@pytest.fixture
def signals(recording: Callable[..., Path]) -> torch.Tensor:
    """Seven mixed channels in a file of the recording's form; the first five, (n, 5)."""
    stream = np.random.RandomState(7)
    mixed = stream.standard_normal((7, 7)) @ stream.laplace(size=(7, LENGTH))
    text, archive = io.StringIO(), io.BytesIO()
    np.savetxt(text, mixed)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("MEG_art.txt", text.getvalue())
    recording(archive.getvalue(), channels=7, length=LENGTH)
    return torch.from_numpy(mixed[:5].T.copy())


@pytest.mark.parametrize(("name", "power"), [("ica-meg", 1.0), ("ica-meg-tempered", 1 / LENGTH)])
def test_density_and_score(name: str, power: float, signals: torch.Tensor) -> None:
    """Each observation on its own. Catches a tempered prior, and a determinant that is not tempered."""
    target = load_task(name).target((0, 1), "cpu", torch.float64)
    x = torch.randn(2, 3, 25, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    w = x.view(2, 3, 5, 5)
    sources = torch.einsum("rnij,tj->rnti", w, signals)
    each = w.det().abs().log().unsqueeze(-1) - (np.pi * sources.cosh()).log().sum(-1)
    prior = torch.distributions.Normal(0.0, 10.0).log_prob(x).sum(-1)
    torch.testing.assert_close(target.log_density(x), power * each.sum(-1) + prior)
    assert_score_is_gradient(target, x)


@pytest.mark.usefixtures("signals")
def test_canonical_coordinates_need_no_known_matrix() -> None:
    """Points near FastICA's solution, shuffled and flipped, come back as they were."""
    task = load_task("ica-meg")
    assert task.facts.unmixing is None
    g = torch.Generator().manual_seed(2)
    near = task.landmark() + 0.05 * torch.randn(20, 5, 5, generator=g, dtype=torch.float64)
    orders = torch.stack([torch.randperm(5, generator=g) for _ in range(20)])
    flipped = -near.gather(1, orders.unsqueeze(-1).expand(20, 5, 5))
    torch.testing.assert_close(task.canonical(flipped.reshape(20, 25)), near.reshape(20, 25))


def test_without_the_recording_the_task_says_what_to_do(recording: Callable[..., Path]) -> None:
    recording(None, channels=122, length=17730)
    with pytest.raises(DataMissingError, match="parvibench data fetch meg-art"):
        load_task("ica-meg").target((0,), "cpu", torch.float32)
