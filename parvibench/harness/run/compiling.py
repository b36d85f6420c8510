"""Steps recorded as programs of tensor operations: the same operations, without the Python between them."""

import importlib.util
import itertools
import math
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from parvibench.core.algorithm import Method
from parvibench.core.errors import InputError
from parvibench.core.sequential import GrowingProblem
from parvibench.core.streams import Streams
from parvibench.core.task import Evaluation, Problem
from parvibench.nn.recording import NotRecordableError, Number, Trace


def require_compiler(device: str) -> None:
    """Raise ``InputError`` where a step's own program cannot be compiled, with what is missing and how to install it."""
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


#: Steps of a chunk, and operations of a step, from which recording pays: it takes as long as some hundreds of the steps.
_STEPS, _OPERATIONS = 1000, 80
_WITH_NUMBERS = {getattr(torch.ops.aten, name).Tensor for name in ("add", "sub", "mul", "div")}
_MOST_FUSED = 1000  #: A density of more operations is not fused.
_MOST_RECORDS = 8  #: of one step, for different numbers in its state
_TOLERANCE = 1e-5  #: relative, of a replay and the plain step, whose kernels are the same


class RecordedStep:
    """An algorithm's bound ``step`` that is recorded when it is called for the second time, and replayed from then on.

    When a state fits none of the records for the second time, another one is made. With the first three replays of a record, and those whose number is a power of two, the plain step is taken too; its
    result counts, and where both differ the step is plain from there on. A replay draws from the streams and charges the
    meter as the step does. Of a step with a program of its own the density alone is recorded, and fused.

    Args:
        step: the method.
        horizon: steps that are foreseen, of few of which none is recorded; by default any are.
    """

    def __init__(self, step: Callable[..., Any], horizon: float | None = None) -> None:
        method = getattr(step, "__self__", None)
        self._own = method.compiled_step() if isinstance(method, Method) else None
        self._step = self._own or step
        self._problem: Problem | None = None  # of the last call
        self._records: list[_Record] = []
        self._missed = 0  # steps since the last record that none fits
        self._least = 0 if horizon is None else _OPERATIONS
        self.seconds = 0.0  #: spent on recording and compiling so far
        self.part = "density" if self._own else "steps"  #: what is recorded
        self.left_plain = ""  #: why that is plain, or empty
        if self._own is None and horizon is not None and horizon < _STEPS:
            self.left_plain = f"recording pays from {_STEPS} steps on, these are {horizon:.0f}"

    def __call__(self, problem: Problem, settings: Any, state: Any, streams: Streams) -> Any:
        """The state after one step."""
        given = problem, settings, state, streams
        if problem is not self._problem:
            self._problem, self._records, self._missed, began = problem, [], 0, time.perf_counter()
            if self._own is not None:
                problem.evaluate_by(lambda plain: fused(plain, partial(setattr, self, "left_plain")))
                result = self._own(*given)  # which compiles its program and the density
                self.seconds += time.perf_counter() - began
                return result
        if self._own or self.left_plain:
            return self._step(*given)
        leaves, tree = tree_flatten(state)
        record = next((r for r in self._records if r.fits(leaves, streams.step)), None)
        if record is not None and not record.is_due_check():
            for charge in record.charges:
                problem.meter.charge(**charge)
            return record.replayed(leaves, streams)
        result, began = self._step(*given), time.perf_counter()
        self._missed += record is None
        if record is None and self._missed < 2:
            return result
        try:
            if record is None:
                record = self._record(given, leaves, tree)
            both = (tree_leaves(x) for x in (record.replayed(leaves, streams), result))
            torch.testing.assert_close(*both, rtol=_TOLERANCE, atol=0.0, equal_nan=True)
        except Exception as error:  # whatever a step does: the plain one is right
            self.left_plain = f"at step {streams.step}: {_reason(error)}"
        self.seconds += time.perf_counter() - began
        return result

    def _record(self, given: Any, leaves: list[Any], tree: Any) -> "_Record":
        if len(self._records) == _MOST_RECORDS:
            raise NotRecordableError(f"it depends on more than its numbers: {self._records[-1].conditions[-1]:.200}")
        self._records.append(_Record(self._step, given, leaves, tree))
        self._missed = 0
        if self._records[-1].operations < self._least:
            raise NotRecordableError(f"recording pays from {_OPERATIONS} operations on")
        return self._records[-1]


class _Record:
    """The operations of a step for the layout of its state, and for the conditions that it was recorded under."""

    def __init__(self, step: Callable[..., Any], given: Any, leaves: list[Any], tree: Any) -> None:
        problem, settings, _, streams = given
        if isinstance(problem, GrowingProblem):
            raise NotRecordableError("the data grow from step to step")
        self._places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
        self._layout = [_layout(leaves[i]) for i in self._places]

        def followed(trace: Trace, tensors: Iterator[Tensor]) -> Any:
            held = [
                next(tensors) if isinstance(x, Tensor)
                else Number(trace, f"n[{i}]", x) if type(x) in (int, float) else x
                for i, x in enumerate(leaves)
            ]  # fmt: skip
            before = problem.meter, problem.streams
            problem.meter, problem.streams = trace, trace.streams
            try:
                return tree_flatten(step(problem, settings, tree_unflatten(held, tree), trace.streams))
            finally:
                problem.meter, problem.streams = before

        with torch.inference_mode(False), torch.no_grad():
            tensors = [_copied(leaves[i]) for i in self._places]
            first = Trace(streams)
            followed(first, iter(tensors))
            last: list[Any] = []

            def again(*inputs: Tensor) -> tuple[Tensor, ...]:
                each = iter(inputs)
                taken = [next(each) for _ in tensors]
                trace = Trace(streams, each)
                outputs, after = followed(trace, iter(taken))
                last[:] = trace, outputs, after
                return tuple(x for x in outputs if isinstance(x, Tensor))

            self._run, self.operations = _replayable(again, tensors + [_copied(x) for x in first.values])
        trace, outputs, self._tree = last
        constants = [f"n[{i}] == {x!r}" for i, x in enumerate(leaves) if isinstance(x, bool | str)]
        self.charges, self.conditions = trace.charges, [f"len(n) == {len(leaves)}", *constants, *trace.conditions]
        count = itertools.count()
        after = [f"o[{next(count)}]" if isinstance(x, Tensor) else getattr(x, "code", repr(x)) for x in outputs]
        self._holds = _function("step, n", " and ".join(dict.fromkeys(self.conditions)))
        self._inputs = _function("step, n, streams", f"[{', '.join(trace.inputs)}]")
        self._after = _function("step, n, o", f"[{', '.join(after)}]")
        self._replays = 0

    def fits(self, leaves: list[Any], step: int) -> bool:
        """Whether the layout and the numbers of a state are those of the record."""
        return bool(self._holds(step, leaves)) and [_layout(leaves[i]) for i in self._places] == self._layout

    def replayed(self, leaves: list[Any], streams: Streams) -> Any:
        """What the step gives, without charges."""
        made = self._run(*(leaves[i] for i in self._places), *self._inputs(streams.step, leaves, streams))
        return tree_unflatten(self._after(streams.step, leaves, made), self._tree)

    def is_due_check(self) -> bool:
        """Whether the plain step is taken with the next replay, which this counts."""
        self._replays += 1
        return self._replays == 3 or not self._replays & (self._replays - 1)


def _function(arguments: str, code: str) -> Callable[..., Any]:
    """A function of the code of a trace: numbers, arithmetic, and draws of streams whose names are quoted."""
    names = {"tensor": torch.tensor, "torch": torch, "inf": math.inf, "nan": math.nan}
    made: Callable[..., Any] = eval(f"lambda {arguments}: {code}", names)
    return made


def _layout(x: Tensor) -> tuple[Any, ...]:
    return x.dtype, x.shape, x.stride()


def _copied(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)


def _reason(error: Exception) -> str:
    if "DataDependent" in type(error).__name__:
        return "values decide which operations follow"
    if ".numpy()" in str(error):
        return "it leaves PyTorch for NumPy"
    first_line, *_ = str(error).strip().splitlines() or [""]
    return first_line if isinstance(error, NotRecordableError) else f"{type(error).__name__}: {first_line:.200}"


def _graph_of(function: Callable[..., Any], inputs: list[Tensor]) -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)


def _replayable(function: Callable[..., Any], inputs: list[Tensor]) -> tuple[Callable[..., Any], int]:
    """The operations of a function for PyTorch's interpreter of TorchScript, on a GPU one graph of launches; their number."""
    graph = _graph_of(function, inputs)
    operations = [node for node in graph.graph.nodes if node.op == "call_function"]
    for node in operations:  # PyTorch would make tensors of the numbers that meet some, each time
        if node.target in _WITH_NUMBERS and isinstance(node.args[1], float | int):
            like, name = node.args[0].meta["val"], f"_number_{node.name}"
            if like.is_floating_point():
                graph.register_buffer(name, torch.tensor(node.args[1], dtype=like.dtype, device=like.device))
                with graph.graph.inserting_before(node):
                    node.update_arg(1, graph.graph.get_attr(name))
    graph.recompile()
    if inputs[0].is_cuda:
        return _Captured(graph.forward, inputs), len(operations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its age, and of constants in the record, which are meant
        return torch.jit.trace(graph.forward, tuple(inputs), check_trace=False), len(operations)  # type: ignore[no-untyped-call]


def fused(plain: Evaluation, note: Callable[[str], object] = lambda reason: None) -> Evaluation:
    """A density that PyTorch's compiler makes for the shape of its first points; plain for others.

    Where that fails it is plain, and ``note`` is called with the reason.
    """
    known: dict[Any, Evaluation] = {}

    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        given = x.shape, x.dtype, x.device
        if not known:
            known[given] = plain
            try:
                known[given] = _fused(plain, x)
            except Exception as error:  # whatever a compiler meets in a task's code: the plain density is right
                note(_reason(error))
        return known.get(given, plain)(x)

    return evaluate


def _fused(plain: Evaluation, x: Tensor) -> Evaluation:
    """Log density and score of points like x by PyTorch's compiler."""
    import torch._inductor
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1  # a worker has one core
    right = plain(x)  # and a target holds what its first call makes
    with torch.inference_mode(False):
        points = x.clone()
        graph = _graph_of(lambda y: plain(y), [points])
        if len(graph.graph.nodes) > _MOST_FUSED:
            raise NotRecordableError(f"of more than {_MOST_FUSED} operations, compiling takes minutes")
        fast: Any = torch._inductor.compile(graph, [points])
        fast = _Captured(fast, [points]) if x.is_cuda else fast
    torch.testing.assert_close(tuple(fast(x)), right, rtol=1e-3, atol=1e-3, equal_nan=True)
    return fast


class _Captured:
    """A CUDA graph of a function."""

    def __init__(self, function: Callable[..., Any], inputs: list[Tensor]) -> None:
        self._inputs, self._graph = [_copied(x) for x in inputs], torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries allocate when they are first called, which a graph cannot hold
            for _ in range(3):
                function(*self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self._graph):
            self._found = function(*self._inputs)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for held, x in zip(self._inputs, inputs, strict=True):
            held.copy_(x)
        self._graph.replay()
        return tuple(x.clone() for x in self._found)  # the next replay overwrites its results


def compile_seconds(advance: Callable[..., Any]) -> float:
    """Time spent on recording and compiling a step so far, s; 0 for a plain one."""
    return advance.seconds if isinstance(advance, RecordedStep) else 0.0
