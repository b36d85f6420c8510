"""Stan programs, compiled once and held in memory with their data.

Of httpstan, which PyStan 3 runs on, only its files are used: Stan's compiler ``stanc``, C++ headers and libraries.
``stan_binding.cpp`` keeps a model in memory behind a C interface; ctypes lets other threads run while it is called.

Measured (httpstan 4.13, g++ 12, one thread of a busy AMD EPYC): a gradient of logistic regression with 5,000 rows and 24
features takes 0.10 ms; compiling takes 20 s of processor time a program, and 26 s once for the binding.
"""

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
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.errors import InputError, install_hint

Array = NDArray[np.float64]

#: Versions of httpstan whose files are where this module looks for them.
_FROM, _BEFORE = (4, 13), (5, 0)
_BINDING = Path(__file__).with_name("stan_binding.cpp")
_FLAGS = (
    "-std=c++17 -O3 -fPIC -w -D_REENTRANT -DSTAN_THREADS -DBOOST_DISABLE_ASSERTS -DBOOST_PHOENIX_NO_VARIADIC_EXPRESSION"
)
#: On Linux the libraries that httpstan ships have the strings of old compilers.
_STRINGS = "-D_GLIBCXX_USE_CXX11_ABI=0" if sys.platform == "linux" else ""
_LIBRARIES = ("-lsundials_cvodes", "-lsundials_idas", "-lsundials_kinsol", "-lsundials_nvecserial", "-ltbb")
#: Functions of the binding: a letter for the type of the result and of each argument, see ``_functions``.
_SIGNATURES = (
    "open:psp close:vp dim:lp names:spi evaluate:splpppi constrain:splpilp unconstrain:spllpp nuts:lpuullidlppppp"
)
#: A batch is split over threads where each has this much to do, s: starting one takes 0.05 ms.
_WORTH_A_THREAD = 0.5e-3


@cache
def _httpstan() -> Path:
    """The folder of httpstan, which is not imported; ``InputError`` without a version and layout as expected."""
    spec = find_spec("httpstan")
    if spec is None or spec.origin is None:
        raise InputError(f"Stan models need httpstan; {install_hint('stan')}")
    folder, found = Path(spec.origin).parent, version("httpstan")
    numbers = tuple(int(part) for part in found.split(".")[:2])
    if not _FROM <= numbers < _BEFORE or not (folder / "stanc").is_file() or not (folder / "include/stan").is_dir():
        raise InputError(f"httpstan {found} is not supported (4.13 or a later 4.x is); {install_hint('stan')}")
    return folder


def _compiler() -> str:
    """The C++ compiler; ``InputError`` where there is none."""
    given = os.environ.get("CXX", "")
    found = next(filter(shutil.which, [given] if given else ["c++", "g++", "clang++"]), None)
    if found is None:
        why = f"CXX={given} is not there" if given else "neither c++, g++ nor clang++ is on the PATH"
        raise InputError(
            f"Stan models need a C++ compiler: {why}; install one (apt install g++, or xcode-select --install)"
        )
    return found


def compiled(program: Path) -> Path:
    """The library of a Stan program in the user's cache, compiled where its content has not been before.

    ``InputError``: no such file; httpstan or a C++ compiler is missing; Stan's message and line on a wrong program.
    """
    import platformdirs
    from filelock import FileLock

    code, compiler = _translated(program), _compiler()
    flags = [*_FLAGS.split(), *_STRINGS.split(), f"-I{_httpstan() / 'include'}"]
    facts = "\n".join([*flags, version("httpstan"), compiler, platform.machine(), _BINDING.read_text()])
    folder = platformdirs.user_cache_path("parvibench") / "stan"
    binding = folder / f"binding-{digest(facts)}.o"
    library = folder / f"{digest(facts + code)}.so"
    if library.is_file():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"), tempfile.TemporaryDirectory() as aside:
        source, made, libraries = Path(aside) / "model.cpp", Path(aside) / "model.o", _httpstan() / "lib"
        source.write_text(code, encoding="utf-8")
        if not binding.is_file():
            print("compiling the binding to Stan, once, in about half a minute", file=sys.stderr, flush=True)
            _run([compiler, *flags, "-c", str(_BINDING)], binding)
        if not library.is_file():
            print(f"compiling {program.name}, once, in about half a minute", file=sys.stderr, flush=True)
            _run([compiler, *flags, "-c", str(source)], made)
            linked = [str(binding), str(made), f"-L{libraries}", *_LIBRARIES, f"-Wl,-rpath,{libraries}"]
            _run([compiler, "-shared", *linked], library)
    return library


def _translated(program: Path) -> str:
    """The C++ that stanc makes of a program; ``InputError`` with its message in one line."""
    if not program.is_file():
        raise InputError(f"no such Stan program: {program}")
    name = f"m{digest(program.read_text())[:12]}"
    # The code holds the command line: no folder may stand there.
    options = ["--name", name, "--filename-in-msg", program.name, "--include-paths", ".", "--print-cpp"]
    done = _stanc(program, "--o", os.devnull, *options)  # else a file is written beside the program
    if done.returncode != 0:
        head, *_, said = done.stderr.strip().split("-" * 40)  # the lines between the rules show the program
        raise InputError(f"{program}: {' '.join(f'{head} {said}'.replace('-', ' ').split())}")
    return done.stdout


def lacking(program: Path, data: str) -> str:
    """Which variables of a program its data lack, as the end of a message, or empty."""
    wanted, given = json.loads(_stanc(program, "--info").stdout)["inputs"], json.loads(data)
    missing = [name for name in wanted if name not in given]
    return f"; the data lack {', '.join(missing)}" if missing else ""


def _stanc(program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(_httpstan() / "stanc"), *options, program.name]
    return subprocess.run(command, cwd=program.absolute().parent, capture_output=True, text=True)


def digest(text: str) -> str:
    """32 digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _run(command: Sequence[str], made: Path) -> None:
    """Run the compiler; its output appears at its place once it is complete."""
    part = made.with_name(f"{made.name}.part")
    done = subprocess.run([*command, "-o", str(part)], capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise InputError(f"{command[0]} fails to compile the model: {lines[0][:300]}")
    part.replace(made)


class StanModel:
    """A compiled program with its data. Pickles as the two, and is opened again where it arrives.

    Points are unconstrained, (n, D), densities without constants and with the Jacobian, all in float64. ``library`` is as of
    ``compiled``, ``data`` a JSON text; ``InputError`` where Stan refuses the data, with the variable's name.
    """

    def __init__(self, library: Path, data: str) -> None:
        self.library, self.data = library, data
        self.rejection = ""  #: what the program said of the last point that it rejected
        self._seconds = 0.0  # of a gradient
        self._functions = _functions(library)
        error = ctypes.c_char_p()
        self._handle = self._functions.parvibench_open(data.encode(), ctypes.byref(error))
        if not self._handle:
            raise InputError(f"Stan refuses the data: {_line(error.value)}")
        self.dim = int(self._functions.parvibench_dim(self._handle))

    def __reduce__(self) -> tuple[Any, ...]:
        return StanModel, (self.library, self.data)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._functions.parvibench_close(self._handle)

    def names(self, kind: int) -> list[str]:
        """Names of coordinates (0), parameters (1), or parameters and all that is computed from them (2), as ``x.1.2``."""
        found: bytes = self._functions.parvibench_names(self._handle, kind)
        return found.decode().split()

    def both(self, points: Tensor, *, gradients: bool = True) -> tuple[Tensor, Tensor]:
        """Log densities (n,) and gradients (n, D), or (0, D); -inf and NaN where the program rejects a point.

        Large batches are split over PyTorch's number of threads; the values do not depend on it.
        """
        x = _doubles(points)
        values, slopes = np.empty(len(x)), np.empty((len(x) if gradients else 0, self.dim))
        used = max(1, min(torch.get_num_threads(), len(x), int(len(x) * self._seconds / _WORTH_A_THREAD)))
        start = time.perf_counter()
        at = _at(slopes) if gradients else None
        said = self._functions.parvibench_evaluate(self._handle, len(x), _at(x), _at(values), at, used)
        if used == 1 and gradients and len(x):
            self._seconds = (time.perf_counter() - start) / len(x)
        self.rejection = _line(said) or self.rejection
        return torch.from_numpy(values), torch.from_numpy(slopes)

    def density(self, points: Tensor) -> Tensor:
        """Log densities (n,)."""
        return self.both(points, gradients=False)[0]

    def score(self, points: Tensor) -> Tensor:
        """Gradients (n, D)."""
        return self.both(points)[1]

    def constrain(self, points: Any, *, everything: bool = False) -> Array:
        """Values (n, k) of ``names(1)``, or of ``names(2)``; ``InputError`` where the program rejects a point."""
        x = _doubles(points)
        values = np.empty((len(x), len(self.names(2 if everything else 1))))
        shape, whole = values.shape, int(everything)
        self._check(self._functions.parvibench_constrain(self._handle, len(x), _at(x), whole, shape[1], _at(values)))
        return values

    def unconstrain(self, given: Array) -> Array:
        """Points (n, D) of values (n, k) of ``names(1)``; ``InputError`` for values outside of their support."""
        values = np.ascontiguousarray(given)
        x = np.empty((len(values), self.dim))
        self._check(self._functions.parvibench_unconstrain(self._handle, *values.shape, _at(values), _at(x)))
        return x

    def nuts(
        self, start: Array, step: Array, metric: Array, *, seed: int, chain: int, warmup: int, draws: int, depth: int,
        acceptance: float, limit: int,
    ) -> tuple[Array, Array, int]:  # fmt: skip
        """Transitions of a chain from a point (D,) by Stan's NUTS; ``warmup`` ones change ``step`` (1,) and ``metric`` (D,).

        Positions (draws, D); acceptance, divergence and tree depth (draws, 3); and the number of gradients, negative where
        ``limit`` of them ended the chain before its last draw.
        """
        positions, facts = np.full((draws, self.dim), np.nan), np.full((draws, 3), np.nan)
        arrays = [_at(a) for a in (start, step, metric, positions, facts)]
        count: int = self._functions.parvibench_nuts(
            self._handle, seed, chain, warmup, draws, depth, acceptance, limit, *arrays
        )
        return positions, facts, count

    def _check(self, said: bytes | None) -> None:
        if said:
            raise InputError(f"Stan: {_line(said)}")


@cache
def _functions(library: Path) -> Any:
    """The functions of a library."""
    loaded = ctypes.CDLL(str(library))
    names = {"p": "c_void_p", "s": "c_char_p", "l": "c_long", "i": "c_int", "u": "c_uint", "d": "c_double"}
    types: dict[str, Any] = {letter: getattr(ctypes, name) for letter, name in names.items()} | {"v": None}
    for known in _SIGNATURES.split():
        name, letters = known.split(":")
        function = getattr(loaded, f"parvibench_{name}")
        function.restype, *function.argtypes = (types[letter] for letter in letters)
    return loaded


def _at(array: Array) -> int:
    return array.ctypes.data


def _doubles(points: Any) -> Array:
    return np.ascontiguousarray(torch.as_tensor(points).detach().cpu().to(torch.float64).numpy())


def _line(said: bytes | None) -> str:
    """The first line of what Stan says."""
    return (said or b"").decode(errors="replace").strip().split("\n")[0].removeprefix("Exception: ")
