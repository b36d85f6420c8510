"""Steps recorded as programs of tensor operations: the same operations, without the Python between them."""

import ctypes
import logging
import math
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from parvibench.core.algorithm import Method
from parvibench.core.errors import UnsupportedError
from parvibench.core.sequential import GrowingProblem
from parvibench.core.streams import Streams
from parvibench.core.task import Evaluation, Problem
from parvibench.nn.recording import NotRecordableError, Trace, formula_of

from .clock import Clock

_MOST_RECORDS = 8  #: of one step, for different numbers in its state
_COUNTING = 5  #: The first replay of a record that counts.
#: The replay of a record at which replays or plain steps are chosen: replays where they take less than this share.
_CHOSEN, _PAYS = 16, 0.9
#: Largest relative difference of a replay and the plain step, whose kernels are the same; some of a GPU add in any order.
_TOLERANCE = {"cpu": 0.0, "cuda": 1e-5}
_MOST_FUSED = 1000  #: A density of more operations is not fused.


class RecordedStep:
    """An algorithm's bound ``step`` that is recorded when it is called for the second time, and replayed from then on.

    Another record is made when a tenth of the steps, and no fewer than two, have had states that fit none. With the first
    four replays of a record, and those whose number is a power of two, the plain step is taken too, whose result counts.
    Where both differ, or replays are slower, all further steps are plain. A replay draws from the streams and charges the
    meter as the step does. Of a step with a program of its own the density alone is recorded, and fused.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        method: Method = step.__self__  # type: ignore[attr-defined]
        self._own = method.compiled_step()
        self._step = self._own or step
        self._problem: Problem | None = None  # whose density is fused for an own step
        self._records: list[_Record] = []
        self._missed = 0  # steps since the last record that none fits
        self.seconds = 0.0  #: spent on recording and compiling so far
        self.left_plain = ""  #: why steps, or the density of an own step, are plain; or empty

    def __call__(self, *given: Any) -> Any:
        """The state after one step, given as ``step`` is.

        Raises:
            UnsupportedError: a replay differs after others have counted: the step depends on more than its arguments.
        """
        problem, _, state, streams = given
        if self._own and problem is not self._problem:  # the first call compiles the program and the density
            self._problem, began = problem, time.perf_counter()
            problem.evaluate_by(lambda plain: Fused(plain, partial(setattr, self, "left_plain")))
            result = self._own(*given)
            self.seconds += time.perf_counter() - began
            return result
        if self._own or self.left_plain:
            return self._step(*given)
        record, leaves = self._fitting(state, streams)
        if record is None:
            self._missed += 1
            return self._step(*given) if self._missed < max(2, streams.step / 10) else self._checked(None, given)
        record.replays += 1
        if record.replays < _COUNTING or not record.replays & (record.replays - 1):
            return self._checked(record, given)
        for charge in record.charges:
            problem.meter.charge(**charge)
        return record.replayed(leaves, streams)

    def _fitting(self, state: Any, streams: Streams) -> tuple["_Record | None", list[Any]]:
        leaves = tree_leaves(state)
        return next((r for r in self._records if r.fits(leaves, streams)), None), leaves

    def _checked(self, record: "_Record | None", given: tuple[Any, ...]) -> Any:
        """What the plain step gives, compared with a replay, of a new record if there is none."""
        *_, state, streams = given
        device = streams.device
        result, plain = _timed(device, lambda: self._step(*given))
        began = time.perf_counter()
        try:
            if record is None:
                if len(self._records) == _MOST_RECORDS:
                    raise NotRecordableError("numbers of the state change the operations again and again")
                record = _Record(self._step, *given)
                self._records, self._missed = [*self._records, record], 0
            replay, replayed = _timed(device, lambda: record.replayed(self._fitting(state, streams)[1], streams))
            within = _TOLERANCE[device.type]
            pair = tree_leaves(replay), tree_leaves(result)
            torch.testing.assert_close(*pair, rtol=within, atol=within / 1000, equal_nan=True)
        except Exception as error:  # whatever a step does: the plain one is right
            if record and record.replays > _COUNTING:
                raise UnsupportedError(f"a replay differs from step {streams.step}: leave --compile out") from error
            self.left_plain = f"at step {streams.step}: {_reason(error)}"
        else:
            record.least = min(record.least[0], plain), min(record.least[1], replayed)
            if record.replays == _CHOSEN and record.least[1] > _PAYS * record.least[0]:
                self.left_plain = "replays are not faster"
        self.seconds += time.perf_counter() - began
        return result


class _Record:
    """The operations of a step for the layout of its state, and for the conditions that it was recorded under."""

    def __init__(self, step: Callable[..., Any], problem: Problem, settings: Any, state: Any, streams: Streams) -> None:
        if isinstance(problem, GrowingProblem):
            raise NotRecordableError("the data grow from step to step")
        leaves, tree = tree_flatten(state)
        self._layout = [_layout(x) for x in leaves]
        self._places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

        def followed(*inputs: Tensor) -> tuple[Tensor, ...]:
            """Tensors of the next state, from those of the state and all further inputs, which are drawn if not given."""
            each = iter(inputs)
            trace = Trace(leaves, streams, each)
            held = [next(each) if isinstance(x, Tensor) else trace.leaf(i) for i, x in enumerate(leaves)]
            before = problem.meter, problem.streams
            problem.meter, problem.streams = trace, trace.streams  # type: ignore[assignment]
            try:
                after, self._tree = tree_flatten(step(problem, settings, tree_unflatten(held, tree), trace.streams))
            finally:
                problem.meter, problem.streams = before
            self._trace, self._outputs = trace, [None if isinstance(x, Tensor) else formula_of(x) for x in after]
            return tuple(x for x in after if isinstance(x, Tensor))

        with torch.inference_mode(False), torch.no_grad():
            tensors = [_copied(leaves[i], streams.device) for i in self._places]
            followed(*tensors)
            self._run = _replayable(followed, tensors + [_copied(x, streams.device) for x in self._trace.values])
        self.charges = self._trace.charges
        self.replays = 0
        self.least = math.inf, math.inf  #: seconds of the plain step and of a replay

    def fits(self, leaves: list[Any], streams: Streams) -> bool:
        """Whether the layout and the numbers of a state are those of the record."""
        alike = [_layout(x) for x in leaves] == self._layout
        return alike and all(formula(leaves, streams) == value for formula, value in self._trace.conditions)

    def replayed(self, leaves: list[Any], streams: Streams) -> Any:
        """What the step gives, without charges."""
        inputs = [formula(leaves, streams) for formula in self._trace.inputs]
        made = iter(self._run(*(leaves[i] for i in self._places), *inputs))
        after = [next(made) if formula is None else formula(leaves, streams) for formula in self._outputs]
        return tree_unflatten(after, self._tree)


def _timed(device: torch.device, work: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the seconds that it took."""
    clock = Clock(device)
    clock.start()
    result = work()
    clock.stop()
    return result, clock.seconds


def _layout(x: Any) -> tuple[Any, ...]:
    return (x.dtype, x.shape, x.stride()) if isinstance(x, Tensor) else (type(x),)


def _copied(x: Tensor, device: torch.device) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x)


def _reason(error: Exception) -> str:
    if "DataDependent" in type(error).__name__:
        return "values decide which operations follow"
    first_line, *_ = str(error).strip().splitlines() or [""]
    return first_line if isinstance(error, NotRecordableError) else f"{type(error).__name__}: {first_line:.200}"


def _graph_of(function: Callable[..., Any], inputs: list[Tensor]) -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)


def _replayable(function: Callable[..., Any], inputs: list[Tensor]) -> Callable[..., Any]:
    """The operations of a function for PyTorch's interpreter of TorchScript, on a GPU one graph of launches."""
    graph = _graph_of(function, inputs)
    if inputs[0].is_cuda:
        return _Captured(graph.forward, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its age, and of constants in the record, which are meant
        return torch.jit.trace(graph.forward, tuple(inputs), check_trace=False)  # type: ignore[no-untyped-call]


class Fused:
    """A density that PyTorch's compiler makes for the layout of its first points; plain for others.

    Where that fails it is plain, and ``note`` is called with the reason.
    """

    def __init__(self, plain: Evaluation, note: Callable[[str], object] = lambda reason: None) -> None:
        self._plain, self._note = plain, note
        self._made: dict[Any, Evaluation] = {}

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """As the plain density."""
        return self.made(x)(x)

    def made(self, x: Tensor) -> Evaluation:
        """The function for points like x."""
        layout = _layout(x)
        if not self._made:
            self._made[layout] = self._plain
            try:
                self._made[layout] = _fused(self._plain, x)
            except Exception as error:  # whatever a compiler meets in a task's code: the plain density is right
                self._note(_reason(error))
        return self._made.get(layout, self._plain)


def _fused(plain: Evaluation, x: Tensor) -> Evaluation:
    """Log density and score of points like x by PyTorch's compiler."""
    import torch._inductor
    import torch._inductor.config
    from tqdm import tqdm  # type: ignore[import-untyped]

    torch._inductor.config.compile_threads = 1  # a worker has one core
    # The bars of the compiler would take a semaphore, which a worker leaves behind when it ends.
    tqdm.set_lock(threading.RLock())
    logging.getLogger("torch._inductor.ir").setLevel(logging.ERROR)  # of operations that are called as in Python

    def packed(y: Tensor) -> tuple[Tensor, ...]:
        return tuple(a.to(y.dtype).contiguous() for a in plain(y))

    right = packed(x)  # and a target holds what its first call makes
    with torch.inference_mode(False):
        points = x.clone()
        graph = _graph_of(packed, [points])
        if len(graph.graph.nodes) > _MOST_FUSED:
            raise NotRecordableError(f"of more than {_MOST_FUSED} operations, compiling takes minutes")
        if x.is_cuda:
            fast: Any = _Captured(torch._inductor.compile(graph, [points]), [points])
        else:
            fast = _InCpp(graph, points)
    found = tuple(fast(x))
    torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-3, equal_nan=True)
    if not all(a.is_contiguous() for a in found):
        raise NotRecordableError("results of the compiled density are not contiguous")
    return fast


class _InCpp:
    """A graph compiled with its constants inside, without the wrappers that PyTorch calls it by, which take as long.

    A C++ program calls it without Python: ``entry`` is the address of a function ``void(void** in, void** out)``. It takes new
    handles of the tensors of ``handles``, the first of which is ``points``, and gives those of its two results, which are
    contiguous and of the type of the points.
    """

    def __init__(self, graph: torch.fx.GraphModule, points: Tensor) -> None:
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        made: list[Any] = []

        def keep(*args: Any, **options: Any) -> Any:
            made.append(compile_fx_inner(*args, **options))
            return made[0]

        with torch.no_grad(), torch._inductor.config.patch(freezing=True, cpp_wrapper=True):
            compiled: Any = compile_fx(graph, [points], inner_compile=keep)
            compiled(points)
        self._call, self.points = made[0].current_callable, points
        known = self._call.__globals__
        constants = [known[n] for n in self._call.__code__.co_names if isinstance(known.get(n), Tensor)]
        handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([points, *constants])
        weakref.finalize(self, torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs, handles)
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.argtypes, address.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
        self.handles = (ctypes.c_void_p * len(handles))(*(address(handle, None) for handle in handles))
        library = ctypes.PyDLL(self._call.__closure__[0].cell_contents.__self__.__file__)
        self.entry = ctypes.cast(library._Z19inductor_entry_implPP16AtenTensorOpaqueS1_, ctypes.c_void_p).value

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._call([x])


class _Captured:
    """A CUDA graph of a function."""

    def __init__(self, function: Callable[..., Any], inputs: list[Tensor]) -> None:
        self._inputs, self._graph = [_copied(x, x.device) for x in inputs], torch.cuda.CUDAGraph()
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
