"""JAX and the libraries on it: imported when they are first needed, by default on one thread of a CPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from parvibench.core.errors import imported_library


def jax_library(module: str, extra: str = "jax") -> Any:
    """A module of a JAX library, with JAX on one thread; ``LibraryMissingError`` names the extra that brings it."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax = imported_library("jax", extra)
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # a callback that waits for an argument would block
    return imported_library(module, extra)


def double_jax(module: str = "jax", extra: str = "jax") -> Any:
    """A module as by ``jax_library``, with JAX in double precision from now on in this process.

    JAX 0.10 takes NumPy arrays that it has met to be of the precision that they had then, so that new programs on them fail:
    what it has compiled before the change is forgotten, and for the same reason the change is final.
    """
    jax = jax_library("jax", extra)
    if not jax.config.jax_enable_x64:
        jax.config.update("jax_enable_x64", True)
        jax.clear_caches()
    return jax_library(module, extra)


def double() -> Any:
    """Context in which JAX computes in double precision on this thread, also within ``single``."""
    return jax_library("jax").enable_x64(True)


@contextmanager
def single() -> Iterator[None]:
    """Context in which JAX computes in single precision, callbacks on threads of their own included."""
    config = jax_library("jax").config
    before = config.jax_enable_x64
    config.update("jax_enable_x64", False)
    try:
        yield
    finally:
        config.update("jax_enable_x64", before)
