"""Every error a user can meet: exit code 2 of the command line for an ``InputError``, 1 where the class says so."""

import difflib
import importlib
from collections.abc import Iterable
from typing import Any, get_args

#: An unknown name is answered by all known ones where there are this few.
_FEW = 12
#: Kinds that a command lists.
_LISTED = ("task", "algorithm", "metric")


class ParVIBenchError(Exception):
    """Root of all errors raised on purpose."""


class InputError(ParVIBenchError, ValueError):
    """Wrong usage or input: says what is wrong, where, and what would be right."""


class UnknownNameError(InputError):
    """A name that no registry holds; ``kind`` says of what, ``hint`` where more names could come from."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = difflib.get_close_matches(name, self.known, n=3, cutoff=0.5)
        *first, last = [repr(n) for n in near] or [""]
        guess = f"; did you mean {', '.join(first)}{' or ' if first else ''}{last}?" if near else "."
        text = f"no {kind} named {name!r}{guess}"
        if len(self.known) <= _FEW:
            text += f"\nKnown: {', '.join(self.known) or 'none'}."
        elif kind in _LISTED:
            text += f"\n`parvibench list {kind}s` lists all {len(self.known)}."
        elif not near:
            text += f"\nKnown: {', '.join(self.known[:_FEW])} and {len(self.known) - _FEW} more."
        super().__init__(f"{text}\n{hint}" if hint else text)


class SettingsError(InputError):
    """A setting that is unknown, of the wrong type or out of range."""


class SuiteError(InputError):
    """A suite file that cannot be read; every problem with its line and key path."""


class ShapeError(InputError):
    """An array of the wrong shape, too few rows, or with non-finite entries."""


class StoreError(InputError):
    """A result store that is locked, damaged or not writable."""


class DiskError(StoreError):
    """A disk that is full or read-only (exit code 1): nothing is wrong with the input, and what was finished stands."""


class DamagedError(StoreError):
    """A stored cell with a file that is missing or not the one that was written; running it again mends it."""


class DataMissingError(ParVIBenchError):
    """A data set that is neither on disk nor reachable (exit code 1); the message holds the command that fetches it."""


class LibraryMissingError(DataMissingError):
    """An optional library that a sampler runs is not installed; the message holds the command that installs it."""


class RefusedError(ParVIBenchError):
    """A submission whose numbers are not those of its methods (exit code 1)."""


class UnsupportedError(ParVIBenchError):
    """The task does not offer what the algorithm needs (or the other way round)."""


class BudgetExhausted(ParVIBenchError):
    """Raised by the meter before the call that would overrun the budget."""


class BudgetIgnored(BaseException):
    """Raised by the meter when an algorithm keeps asking; no ``Exception``, which an adapter may catch."""


def install_hint(extra: str) -> str:
    """How to install what the package's extra of this name brings, as the end of a message."""
    return f"install it in a checkout of ParVIBench: pip install '.[{extra}]'"


def imported_library(module: str, extra: str = "") -> Any:
    """A module of an optional library; ``LibraryMissingError`` names the extra, by default of the library's name."""
    top = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in (top, extra):
            raise
        raise LibraryMissingError(f"{top} is not installed; {install_hint(extra or top)}") from None


def validation_text(error: Any, owner: str = "", model: Any = None, unknown: str = "unknown key") -> str:
    """All problems of a pydantic ``ValidationError``, a line each.

    ``owner`` comes before every key path; for an unknown key the message lists those that ``model`` accepts.
    """
    lines: dict[str, None] = {}
    for e in error.errors():
        path = ".".join(str(p) for p in (owner, *e["loc"]) if p != "")
        lines[problem_text(e, path, known_keys(model, e["loc"][:-1]), unknown)] = None
    return "\n".join(lines)


def problem_text(error: Any, path: str, known: Iterable[str] | None = None, unknown: str = "unknown key") -> str:
    """One line for one of ``ValidationError.errors()``: key path, what is wrong, and what was given."""
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = unknown if known is None else f"{unknown}. Known: {', '.join(known) or 'none'}."
    elif error["type"] != "missing" and not isinstance(error["input"], dict | list | tuple):
        message = f"{message} (given {error['input']!r:.80})"
    return f"{path}: {message}" if path else message


def known_keys(model: Any, path: Iterable[Any]) -> list[str] | None:
    """The keys that a pydantic model admits at a path of keys and positions; None where it admits any."""
    for part in path:
        if isinstance(part, str) and not part.startswith("function-"):
            field = getattr(model, "model_fields", {}).get(part)
            model = None if field is None else _model_in(field.annotation)
    return None if model is None else list(model.model_fields)


def _model_in(annotation: Any) -> Any:
    """The first pydantic model that a type is made of."""
    if hasattr(annotation, "model_fields"):
        return annotation
    return next((m for a in get_args(annotation) if (m := _model_in(a)) is not None), None)


def printable(text: str) -> str:
    """The text with everything escaped that a terminal would obey or UTF-8 cannot hold."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
