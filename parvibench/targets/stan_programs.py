"""Stan programs with their data, in memory behind BridgeStan's interface.

By default stanli interprets a program, without a compiler; a library that BridgeStan compiled serves what stanli does not
support. Both offer the same functions of C, one point a call: batches are loops over addresses.
"""

import contextlib
import ctypes
import hashlib
import io
import os
import re
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.errors import InputError, imported_library

Array = NDArray[np.float64]

#: Environment variable with compiled libraries, separated as the folders of PATH are.
LIBRARY_VARIABLE = "PARVIBENCH_STAN_LIBRARY"
#: Of random numbers in transformed data and in generated quantities.
_SEED = 1
_INCLUDE = re.compile(r"""\s*\#include\s*[<"]?([^\s<>"]+)[>"]?\s*(//.*)?""")
#: The excerpt of the program in messages of stanc.
_EXCERPT = re.compile(r"\n\s*-{20,}\n.*\n\s*-{20,}\n", re.DOTALL)
_MISSING = re.compile(r"unknown (?:data variable|int|real) (\w+)|variable does not exist;.*variable name=(\w+)")
_UNSUPPORTED = re.compile(r"unsupported (?:function |sized type S?|parameter transform \| in: )(\w+)")
#: Stan's ``print`` goes to standard output, where results are.
_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(lambda text, length: None)


class Program(NamedTuple):
    """The text of a Stan program, with the files that it includes in their places."""

    file: str  #: its name, without folders
    text: str
    lines: tuple[tuple[str, int], ...]  #: the file and number there of every line


def text_of(path: Path, kind: str, expected: str) -> str:
    """The text of a file; ``InputError`` where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"no such {kind}: {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected {expected}: {error}") from None


def read(path: Path) -> Program:
    """A program of a file; ``InputError`` where it or an included file, sought in its folder, cannot be read."""
    lines = list(_lines(path, path.parent, 0))
    return Program(path.name, "".join(line for line, *_ in lines), tuple((name, i) for _, name, i in lines))


def _lines(path: Path, folder: Path, depth: int) -> Iterator[tuple[str, str, int]]:
    """Lines with the name of their file and their number."""
    for i, line in enumerate(text_of(path, "Stan program", "the text of a Stan program").splitlines(), 1):
        if (included := _INCLUDE.fullmatch(line)) is None:
            yield f"{line}\n", path.name, i
        elif depth > 9:
            raise InputError(f"{path}: files that include each other")
        else:
            yield from _lines(folder / included[1], folder, depth + 1)


def library_of(program: Path) -> Path | None:
    """The compiled library of a program among those of the environment: ``NAME_model``, as BridgeStan names it."""
    given = map(Path, filter(None, os.environ.get(LIBRARY_VARIABLE, "").split(os.pathsep)))
    return next((path for path in given if path.stem == f"{program.stem}_model"), None)


def digest(text: str) -> str:
    """32 digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class StanModel:
    """A program with its data in JSON, of ``origin``. Pickles as the two, and is built again where it arrives.

    Points are unconstrained, (n, D), densities without constants and with the Jacobian, all in float64. stanli interprets
    the program where there is no ``library`` that BridgeStan compiled from it. ``InputError`` where Stan refuses program or
    data, or the library is none, ``LibraryMissingError`` where stanli or bridgestan is not installed.
    """

    def __init__(self, program: Program, data: str, library: Path | None = None, *, origin: str = "the data") -> None:
        self.program, self.data, self.library = program, data, library
        self.rejection = ""  #: what the program said of the first point that it rejected
        stanli = None if library else imported_library("stanli", "stan")
        bridgestan = imported_library("bridgestan", "stan")
        options = {"seed": _SEED, "warn": False}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                if stanli is None:
                    self._model = bridgestan.StanModel(str(library), data, **options)
                else:
                    self._model = stanli.bridgestan_model(stan_code=program.text, data=data, **options)
        except (OSError, AttributeError) as error:
            said = str(error).replace(str(library), "it")
            raise InputError(f"{library and library.name}: expected a library compiled by BridgeStan: {said}") from None
        except (RuntimeError, ValueError) as error:
            raise InputError(self._explained(str(error), origin)) from None
        self._density, self._gradient, silence = _functions(self._model.lib_path)
        silence(ctypes.cast(_SILENT, ctypes.c_void_p), None)
        # The model, and whether constants are dropped and the Jacobian is included; of their own types, which is faster.
        self._first = [repeat(v) for v in (ctypes.c_void_p(self._model.model), ctypes.c_int(1), ctypes.c_int(1))]
        self.dim, self.parameters = int(self._model.param_unc_num()), int(self._model.param_num())

    def __reduce__(self) -> tuple[Any, ...]:
        return StanModel, (self.program, self.data, self.library)

    def _explained(self, said: str, origin: str) -> str:
        """A message of Stan in one line, with files by their names."""
        if missing := _MISSING.search(said):
            return f"{origin}: there is no {missing[1] or missing[2]}, which {self.program.file} declares as data"
        if what := _UNSUPPORTED.search(said):
            name = f"{Path(self.program.file).stem}_model"
            return f"stanli cannot run `{what[1]}`; give a library compiled by BridgeStan: --stan-library {name}.so"
        return f"{self.program.file}: {_line(said, self.program)}"

    def names(self, kind: int) -> list[str]:
        """Names of coordinates (0), parameters (1), or parameters and all that is computed from them (2), as ``x.1.2``."""
        more = kind == 2
        return self._model.param_names(include_tp=more, include_gq=more) if kind else self._model.param_unc_names()

    def both(self, points: Tensor, *, gradients: bool = True) -> tuple[Tensor, Tensor]:
        """Log densities (n,) and gradients (n, D), or (0, D); -inf and NaN where the program gives none."""
        x = _doubles(points)
        if x.shape[1:] != (self.dim,):
            raise InputError(f"{self.program.file}: points of shape {x.shape}, not (n, {self.dim})")
        values, slopes = np.empty(len(x)), np.empty((len(x) if gradients else 0, self.dim))
        rows, function = [(x, self.dim), (values, 1)], self._density
        if gradients:
            rows, function = [*rows, (slopes, self.dim)], self._gradient
        places = (range(a.ctypes.data, a.ctypes.data + 8 * k * len(x), 8 * k) for a, k in rows)
        codes = list(map(function, *self._first, *places, repeat(None)))
        if any(codes) or not (values > -np.inf).all():
            none = np.array(codes, dtype=bool) | ~(values > -np.inf)
            values[none], slopes[none[: len(slopes)]] = -np.inf, np.nan
            if not self.rejection:
                try:
                    self._model.log_density(x[none][0])
                except RuntimeError as error:
                    self.rejection = _line(str(error), self.program)
        return torch.from_numpy(values), torch.from_numpy(slopes)

    def density(self, points: Tensor) -> Tensor:
        """Log densities (n,)."""
        return self.both(points, gradients=False)[0]

    def score(self, points: Tensor) -> Tensor:
        """Gradients (n, D)."""
        return self.both(points)[1]

    def constrain(self, points: Any, *, everything: bool = False, seed: int = _SEED) -> Array:
        """Values (n, k) of ``names(1)``, or of ``names(2)``; ``InputError`` where the program rejects a point."""
        options = {"include_tp": everything, "include_gq": everything}
        rng = self._model.new_rng(seed) if everything else None
        return self._rows(lambda x: self._model.param_constrain(x, rng=rng, **options), _doubles(points))

    def unconstrain(self, given: Array) -> Array:
        """Points (n, D) of values (n, k) of ``names(1)``; ``InputError`` for values outside of their support."""
        values = np.ascontiguousarray(given, dtype=np.float64)
        if values.shape[1:] != (self.parameters,):  # not checked by BridgeStan, which reads beyond the end
            raise InputError(f"{self.program.file}: values of shape {values.shape}, not (n, {self.parameters})")
        points = self._rows(self._model.param_unconstrain, values)
        if len(bad := np.flatnonzero(~np.isfinite(points).all(1))):
            raise InputError(f"number {bad[0] + 1} of {len(points)}: on the edge of its support or outside of it")
        return points

    @cached_property
    def lost(self) -> list[str]:
        """Parameters whose values do not hold their coordinates: unit vectors, whose length is free."""
        x = np.linspace(-0.9, 0.8, self.dim)[None]
        kept = np.isclose(self.unconstrain(self.constrain(x)), x, rtol=1e-6)[0]
        return sorted({name.partition(".")[0] for name, same in zip(self.names(0), kept, strict=True) if not same})

    def _rows(self, function: Any, rows: Array) -> Array:
        found: list[Array] = []
        try:
            for row in rows:
                found.append(function(row))
        except RuntimeError as error:
            message = f"number {len(found) + 1} of {len(rows)}: Stan: {_line(str(error), self.program)}"
            raise InputError(message) from None
        return np.array(found).reshape(len(rows), -1)


@cache
def _functions(library: str) -> tuple[Any, Any, Any]:
    """The log density, that with its gradient, and what sets the printing function, by addresses: ten times as fast."""
    loaded, pointer, flag = ctypes.CDLL(library), ctypes.c_void_p, ctypes.c_int
    found = loaded.bs_log_density, loaded.bs_log_density_gradient, loaded.bs_set_print_callback
    for function, n in zip(found, (3, 4, 0), strict=True):
        function.restype = flag if n else None
        function.argtypes = [pointer, *[flag] * 2, *[pointer] * n] if n else [pointer] * 2
    return found


def _doubles(points: Any) -> Array:
    return np.ascontiguousarray(torch.as_tensor(points).detach().cpu().to(torch.float64).numpy())


def _line(said: str, program: Program) -> str:
    """What Stan says, in a line, with the places in the program's files."""

    def place(match: re.Match[str]) -> str:
        file, number = program.lines[min(int(match[1]), len(program.lines)) - 1]
        return f"{file!r}, line {number}"

    said = re.sub(r"'string', line (\d+)", place, _EXCERPT.sub(" ", said).replace("Exception: ", ""))
    return " ".join(re.sub(r"^stanli [\w ]*: ", "", said.strip()).split())
