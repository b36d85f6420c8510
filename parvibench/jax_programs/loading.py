"""JAX and the libraries on it: imported when they are first needed, on one thread of a CPU unless told otherwise."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from parvibench.core.errors import imported_library


def jax_library(module: str, extra: str = "jax") -> Any:
    """A module of a JAX library, with JAX on one thread; ``LibraryMissingError`` names the extra that brings it."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax = imported_library("jax", extra)
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # a callback that waits for an argument would block
    return imported_library(module, extra)


def precision(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Within the block JAX computes in that precision: its own default is single."""
    return jax_library("jax").enable_x64(dtype is torch.float64)


def numpy_type(dtype: torch.dtype) -> Any:
    """The NumPy type of the same numbers."""
    return np.float64 if dtype is torch.float64 else np.float32
