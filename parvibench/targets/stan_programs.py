"""Stan programs, compiled once and held in memory with their data.

httpstan, which PyStan 3 runs on, ships Stan's compiler ``stanc``, the C++ headers and the libraries: they are all that is
used of it, none of its Python is imported. ``stan_binding.cpp`` keeps a model in memory behind a C interface, called by
ctypes, which lets other threads run; httpstan's own modules build the model from its data at every call.

Measured (httpstan 4.13, g++ 12 -O3, one thread of an AMD EPYC): logistic regression with 5,000 rows and 24 features, a
gradient in 0.10 ms; compiling takes 20 s of processor time a program, and 26 s once for the binding.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import InputError, install_hint

Array = NDArray[np.float64]

#: Versions of httpstan whose files are where this module looks for them.
_FROM, _BEFORE = (4, 13), (5, 0)
_BINDING = Path(__file__).with_name("stan_binding.cpp")
_FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-w", "-D_REENTRANT", "-DSTAN_THREADS", "-DBOOST_DISABLE_ASSERTS",
    "-DBOOST_PHOENIX_NO_VARIADIC_EXPRESSION",
)  # fmt: skip
_LIBRARIES = ("-lsundials_cvodes", "-lsundials_idas", "-lsundials_kinsol", "-lsundials_nvecserial", "-ltbb")
#: A batch is split over threads where each has this much to do, s: starting one takes 0.05 ms.
_WORTH_A_THREAD = 0.5e-3


class Toolchain(NamedTuple):
    """What turns a Stan program into a library."""

    folder: Path  #: of httpstan
    version: str
    compiler: str

    @property
    def flags(self) -> list[str]:
        """Of the compiler."""
        # On Linux the libraries that httpstan ships have the strings of old compilers.
        strings = ["-D_GLIBCXX_USE_CXX11_ABI=0"] if sys.platform == "linux" else []
        return [*_FLAGS, *strings, f"-I{self.folder / 'include'}"]


@cache
def toolchain() -> Toolchain:
    """httpstan and a C++ compiler.

    Raises:
        InputError: httpstan is not installed, or has another version or layout; there is no compiler.
    """
    spec = find_spec("httpstan")  # does not import it
    if spec is None or spec.origin is None:
        raise InputError(f"Stan models need httpstan; {install_hint('stan')}")
    folder, found = Path(spec.origin).parent, version("httpstan")
    numbers = tuple(int(part) for part in found.split(".")[:2])
    if not _FROM <= numbers < _BEFORE or not (folder / "stanc").is_file() or not (folder / "include/stan").is_dir():
        raise InputError(f"httpstan {found} is not supported (4.13 or a later 4.x is); {install_hint('stan')}")
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if compiler is None or shutil.which(compiler) is None:
        named = f"CXX={compiler} is not there" if compiler else "neither c++, g++ nor clang++ is on the PATH"
        raise InputError(
            f"Stan models need a C++ compiler: {named}; install one (apt install g++, or xcode-select --install)"
        )
    return Toolchain(folder, found, compiler)


def cache_folder() -> Path:
    """Where compiled programs lie."""
    import platformdirs

    return platformdirs.user_cache_path("parvibench") / "stan"


def compiled(program: Path) -> Path:
    """The library of a Stan program, compiled where its content has not been before.

    Raises:
        InputError: no such file; an error of Stan's compiler, with its line; the C++ compiler fails.
        InputError: as of ``toolchain``.
    """
    if not program.is_file():
        raise InputError(f"no such Stan program: {program}")
    tools = toolchain()
    code = _translated(program, tools)
    facts = (*tools.flags, tools.version, tools.compiler, platform.machine(), _BINDING.read_text())
    common = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    folder = cache_folder()
    library = folder / f"{hashlib.sha256((common + code).encode()).hexdigest()[:32]}.so"
    if library.is_file():
        return library
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    binding = folder / f"binding-{common}.o"
    with FileLock(folder / "lock"):
        if not binding.is_file():
            print("compiling the binding to Stan, once, in about half a minute", file=sys.stderr, flush=True)
            _run_compiler(tools, [*tools.flags, "-c", str(_BINDING)], binding)
        if not library.is_file():
            print(f"compiling {program.name}, once, in about half a minute", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as aside:
                source, made = Path(aside) / "model.cpp", Path(aside) / "model.o"
                source.write_text(code, encoding="utf-8")
                _run_compiler(tools, [*tools.flags, "-c", str(source)], made)
                where = tools.folder / "lib"
                linked = [str(binding), str(made), f"-L{where}", *_LIBRARIES, f"-Wl,-rpath,{where}"]
                _run_compiler(tools, ["-shared", *linked], library)
    return library


def lacking(program: Path, data: Mapping[str, Any]) -> str:
    """Which variables of a program its data lack, as the end of a message; empty where none, or the program is wrong."""
    told = subprocess.run([str(toolchain().folder / "stanc"), "--info", str(program)], capture_output=True, text=True)
    wanted = json.loads(told.stdout)["inputs"] if told.returncode == 0 else {}
    missing = [name for name in wanted if name not in data]
    return f"; the data lack {', '.join(missing)}" if missing else ""


def _translated(program: Path, tools: Toolchain) -> str:
    """The C++ that stanc makes of a program; ``InputError`` with its message in one line."""
    name = f"m{hashlib.sha256(program.read_bytes()).hexdigest()[:12]}"
    options = ["--name", name, "--filename-in-msg", program.name, "--include-paths", str(program.parent), "--print-cpp"]
    done = subprocess.run([str(tools.folder / "stanc"), *options, str(program)], capture_output=True, text=True)
    if done.returncode != 0:
        # The lines between the rules show the program.
        head, *_, said = done.stderr.strip().split("-" * 40)
        raise InputError(f"{program}: {' '.join(f'{head} {said}'.replace('-', ' ').split())}")
    return done.stdout


def _run_compiler(tools: Toolchain, arguments: Sequence[str], made: Path) -> None:
    """Run the compiler; its output appears at its place once it is complete."""
    part = made.with_name(f"{made.name}.part")
    done = subprocess.run([tools.compiler, *arguments, "-o", str(part)], capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise InputError(f"{tools.compiler} fails to compile the model: {lines[0][:300]}")
    part.replace(made)


class StanModel:
    """A compiled program with its data. Pickles as the two, and is opened again where it arrives.

    Points are unconstrained, (n, D) float64, densities without constants and with the Jacobian, as Stan samples them.

    Args:
        library: as of ``compiled``.
        data: JSON text of the program's data.

    Raises:
        InputError: Stan refuses the data: the message names the variable.
    """

    def __init__(self, library: Path, data: str) -> None:
        self.library, self.data = library, data
        self.rejection = ""  #: what the program said of the last point that it rejected
        self._seconds: float | None = None  # of a gradient
        self.dim = int(_functions(self.library).parvibench_dim(self._handle))

    def __reduce__(self) -> tuple[Any, ...]:
        return StanModel, (self.library, self.data)

    def __del__(self) -> None:
        if "_handle" in self.__dict__:
            _functions(self.library).parvibench_close(self._handle)

    @cached_property
    def _handle(self) -> ctypes.c_void_p:
        error = ctypes.c_char_p()
        handle = _functions(self.library).parvibench_open(self.data.encode(), ctypes.byref(error))
        if not handle:
            raise InputError(f"Stan refuses the data: {_line(error.value)}")
        return ctypes.c_void_p(handle)

    def names(self, kind: int) -> list[str]:
        """Names of coordinates (0), parameters (1), or parameters and all that is computed from them (2), as ``x.1.2``."""
        found: bytes = _functions(self.library).parvibench_names(self._handle, kind)
        return found.decode().split()

    def evaluate(self, x: Array, *, gradients: bool = True, threads: int = 1) -> tuple[Array, Array | None]:
        """Log densities (n,) and gradients (n, D); -inf and NaN where the program rejects a point.

        ``threads`` is the most to use; the values do not depend on it.
        """
        x = np.ascontiguousarray(x, dtype=np.float64)
        values, slopes = np.empty(len(x)), np.empty_like(x) if gradients else None
        work = 0.0 if self._seconds is None else len(x) * self._seconds
        used = max(1, min(threads, len(x), int(work / _WORTH_A_THREAD)))
        start = time.perf_counter()
        said = _functions(self.library).parvibench_evaluate(
            self._handle, len(x), _at(x), _at(values), None if slopes is None else _at(slopes), used
        )
        if used == 1 and len(x) and gradients:
            self._seconds = (time.perf_counter() - start) / len(x)
        self.rejection = _line(said) if said else self.rejection
        return values, slopes

    def constrain(self, x: Array, *, everything: bool = False) -> Array:
        """Values (n, k) of ``names(1)``, or of ``names(2)`` with ``everything``, at points (n, D).

        Raises:
            InputError: the program rejects a point.
        """
        x = np.ascontiguousarray(x, dtype=np.float64)
        values = np.empty((len(x), len(self.names(2 if everything else 1))))
        self._check(
            _functions(self.library).parvibench_constrain(
                self._handle, len(x), _at(x), int(everything), values.shape[1], _at(values)
            )
        )
        return values

    def unconstrain(self, values: Array) -> Array:
        """Points (n, D) of values (n, k) of ``names(1)``; ``InputError`` for values outside of their support."""
        values = np.ascontiguousarray(values, dtype=np.float64)
        x = np.empty((len(values), self.dim))
        self._check(_functions(self.library).parvibench_unconstrain(self._handle, *values.shape, _at(values), _at(x)))
        return x

    def nuts(
        self, start: Array, step: Array, metric: Array, *, seed: int, chain: int, warmup: int, draws: int, depth: int,
        acceptance: float, limit: int,
    ) -> tuple[Array, Array, int]:  # fmt: skip
        """Transitions of one chain by Stan's own NUTS with a diagonal metric, from a point (D,).

        ``warmup`` transitions of Stan's windowed adaptation change ``step`` (1,) and the inverse ``metric`` (D,) in place.

        Returns:
            Positions (draws, D), facts (draws, 3): acceptance, divergence, tree depth; and gradients evaluated, negative
            where ``limit`` of them ended the chain before its last draw.
        """
        positions, facts = np.full((draws, self.dim), np.nan), np.full((draws, 3), np.nan)
        start = np.ascontiguousarray(start, dtype=np.float64)
        count: int = _functions(self.library).parvibench_nuts(
            self._handle, seed, chain, warmup, draws, depth, acceptance, limit, _at(start), _at(step), _at(metric),
            _at(positions), _at(facts),
        )  # fmt: skip
        return positions, facts, count

    def _check(self, said: bytes | None) -> None:
        if said:
            raise InputError(f"Stan: {_line(said)}")


@cache
def _functions(library: Path) -> Any:
    """The functions of a library, with the types of what they take and return."""
    loaded = ctypes.CDLL(str(library))
    pointer, text, number, small = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_int
    real, natural = ctypes.c_double, ctypes.c_uint
    for name, result, arguments in (
        ("open", pointer, [text, pointer]),
        ("close", None, [pointer]),
        ("dim", number, [pointer]),
        ("names", text, [pointer, small]),
        ("evaluate", text, [pointer, number, pointer, pointer, pointer, small]),
        ("constrain", text, [pointer, number, pointer, small, number, pointer]),
        ("unconstrain", text, [pointer, number, number, pointer, pointer]),
        ("nuts", number, [pointer, natural, natural, number, number, small, real, number, *[pointer] * 5]),
    ):
        function = getattr(loaded, f"parvibench_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


def _at(array: Array) -> int:
    return array.ctypes.data


def _line(said: bytes | None) -> str:
    """The first line of what Stan says."""
    return (said or b"").decode(errors="replace").strip().split("\n")[0].removeprefix("Exception: ")
