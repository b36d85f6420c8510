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
from parvibench.core.task import Evaluation


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


_MOST_OPERATIONS = 1000  #: A density of more is not compiled.


class CompiledStep:
    """An algorithm's bound ``step``, compiled when it is first called: as it says itself, or by ``torch.compile``.

    With an own step the density alone is compiled, see ``CompiledDensity``. By ``torch.compile`` only tensor arithmetic
    is compiled; meter and streams stay plain Python. On CUDA the compiled step is a CUDA graph
    (``mode="reduce-overhead"``): the next call overwrites its outputs, so callers get copies. ``seconds`` were spent on
    compiling so far.
    """

    def __init__(self, step: Callable[..., Any], device: str = "cpu") -> None:
        import torch._inductor.config
        from torch._dynamo.callback import callback_handler

        torch._dynamo.reset()  # its cache of a few versions a function would also hold earlier cells'
        torch._inductor.config.compile_threads = 1  # a worker has one core
        keep_from_compilers()
        self.seconds, self._began = 0.0, 0.0
        method = getattr(step, "__self__", None)
        self._own = method.compiled_step() if isinstance(method, Method) else None
        if self._own is None:  # after the reset, which forgets all callbacks
            callback_handler.register_start_callback(self._start)
            callback_handler.register_end_callback(self._stop)
        self._graphs = device == "cuda" and self._own is None
        self._problem: Any = None  # whose density is compiled for an own step
        self._density: CompiledDensity | None = None
        self._step = self._own or torch.compile(step, mode="reduce-overhead" if self._graphs else None)

    @property
    def left_plain(self) -> str:
        """Why the density of an own step was not compiled, or an empty string."""
        return self._density.left_plain if self._density is not None else ""

    def __call__(self, *given: Any) -> Any:
        """The state after one step."""
        if self._own is not None and given[0] is not self._problem:  # the first call compiles step and density
            self._start()
            self._problem = given[0]
            self._problem.evaluate_by(self._compiled)
            state = self._own(*given)
            self._stop()
            return state
        if not self._graphs:
            return self._step(*given)
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return tree_map_only(Tensor, torch.clone, self._step(*given))

    def _start(self, *_: Any) -> None:
        self._began = time.perf_counter()

    def _stop(self, *_: Any) -> None:
        self.seconds += time.perf_counter() - self._began

    def _compiled(self, plain: Evaluation) -> Evaluation:
        self._density = CompiledDensity(plain)
        return self._density


class CompiledDensity:
    """Log density and score of points of the shape that is given first, compiled; plain for others.

    The operations on the first points are recorded and fused by PyTorch's compiler: without the guards of
    ``torch.compile``, which take longer than a small density. On CUDA their launches are one graph. Where a density
    cannot be recorded, because values decide what is computed, or has too many operations, it stays plain: ``left_plain``
    says why, or is empty.
    """

    def __init__(self, plain: Evaluation) -> None:
        self._plain, self._fast, self.left_plain = plain, plain, ""
        self._for: Any = None  # shape, type and device of its points

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of points (R, N, D)."""
        given = x.shape, x.dtype, x.device
        if self._for is None:
            self._for, self._fast = given, self._made(x)
        return (self._fast if given == self._for else self._plain)(x)

    def _made(self, x: Tensor) -> Evaluation:
        makers: list[Callable[..., Evaluation]] = [_fused]
        if x.is_cuda:
            makers = [lambda plain, x: _Replayed(_fused(plain, x), x), _Replayed]
        right = self._plain(x)  # and a target holds what its first call makes
        for make in makers:
            try:
                fast = make(self._plain, x)
                torch.testing.assert_close(tuple(fast(x)), right, rtol=1e-3, atol=1e-3, equal_nan=True)
            except Exception as error:  # whatever a compiler meets in a task's code: the plain density is right
                first_line, *_ = str(error).strip().splitlines() or [""]
                self.left_plain = f"{type(error).__name__}: {first_line:.200}"
            else:
                self.left_plain = ""
                return fast
        return self._plain


def _fused(plain: Evaluation, x: Tensor) -> Evaluation:
    import torch._inductor
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.inference_mode(False):
        points = x.clone()
        recorded = make_fx(lambda y: plain(y), tracing_mode="fake", _allow_non_fake_inputs=True)(points)
        if len(recorded.graph.nodes) > _MOST_OPERATIONS:
            raise ValueError(f"of more than {_MOST_OPERATIONS} operations, compiling takes minutes")
        fast: Evaluation = torch._inductor.compile(recorded, [points])
    return fast


class _Replayed:
    """A CUDA graph of an evaluation."""

    def __init__(self, plain: Evaluation, x: Tensor) -> None:
        self._x, self._graph = x.clone(), torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries allocate when they are first called, which a graph cannot hold
            for _ in range(3):
                plain(self._x)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self._graph):
            self._found = plain(self._x)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self._x.copy_(x)
        self._graph.replay()
        value, score = self._found
        return value.clone(), score.clone()  # the next replay overwrites its results


def compile_seconds(advance: Callable[..., Any]) -> float:
    """Time spent on compiling a step so far, s; 0 for a plain one."""
    return advance.seconds if isinstance(advance, CompiledStep) else 0.0
