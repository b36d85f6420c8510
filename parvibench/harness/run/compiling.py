"""Steps through ``torch.compile``, with the time of compiling measured apart."""

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from parvibench.core.algorithm import Method
from parvibench.core.errors import InputError
from parvibench.core.streams import keep_from_compilers


def require_compiler(device: str) -> None:
    """Raise ``InputError`` where ``--compile`` cannot work, with what is missing and how to install it."""
    if device == "cuda":
        if importlib.util.find_spec("triton") is None:
            raise InputError("--compile on a GPU needs Triton: pip install triton, or leave --compile out")
        return
    compiler = os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    if shutil.which(compiler) is None:
        raise InputError(
            f"--compile needs a C++ compiler, and there is no {compiler!r} on the PATH: install one, name another "
            "in the environment variable CXX, or leave --compile out"
        )


class CompiledStep:
    """An algorithm's bound ``step``, compiled when it is first called: as it says itself, or by ``torch.compile``.

    By ``torch.compile`` only tensor arithmetic is compiled; meter and streams stay plain Python. On CUDA the compiled
    step is a CUDA graph (``mode="reduce-overhead"``): the next call overwrites its outputs, so callers get copies.
    """

    def __init__(self, step: Callable[..., Any], device: str = "cpu") -> None:
        import torch._inductor.config

        torch._dynamo.reset()  # its cache of a few versions a function would also hold earlier cells'
        torch._inductor.config.compile_threads = 1  # a worker has one core
        keep_from_compilers()
        self._stopwatch = _Stopwatch()  # after the reset, which forgets all callbacks
        method = getattr(step, "__self__", None)
        self._own = method.compiled_step() if isinstance(method, Method) else None
        self._graphs = device == "cuda" and self._own is None
        self._first = 0.0  # seconds of an own step's first call, which compiles it
        self._step = self._own or torch.compile(step, mode="reduce-overhead" if self._graphs else None)

    @property
    def seconds(self) -> float:
        """Time spent on compiling so far, s."""
        return self._stopwatch.seconds + self._first

    def __call__(self, *given: Any) -> Any:
        """The state after one step."""
        if self._own is not None and not self._first:
            began = time.perf_counter()
            state = self._own(*given)
            self._first = time.perf_counter() - began
            return state
        if not self._graphs:
            return self._step(*given)
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return tree_map_only(Tensor, torch.clone, self._step(*given))


def compile_seconds(advance: Callable[..., Any]) -> float:
    """Time spent on compiling a step so far, s; 0 for a plain one."""
    return advance.seconds if isinstance(advance, CompiledStep) else 0.0


class _Stopwatch:
    """Sums up the time that PyTorch spends on compiling in this process from now on, until the next reset."""

    def __init__(self) -> None:
        from torch._dynamo.callback import callback_handler

        self.seconds, self._began = 0.0, 0.0
        callback_handler.register_start_callback(self._start)
        callback_handler.register_end_callback(self._stop)

    def _start(self, *_: Any) -> None:
        self._began = time.perf_counter()

    def _stop(self, *_: Any) -> None:
        self.seconds += time.perf_counter() - self._began
