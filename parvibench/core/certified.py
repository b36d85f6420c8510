"""Certificates of shipped and user-built references, without PyTorch."""

import hashlib
import json
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from . import reference_folders
from .errors import InputError


class Certificate(NamedTuple):
    """A certificate and the content of the file of arrays that it certifies."""

    facts: dict[str, Any]
    content: bytes


def home_of(name: str) -> Traversable | None:
    """The first of the folders searched with a reference of the task; None without one."""
    return next((folder for folder in reference_folders() if (folder / f"{name}.json").is_file()), None)


def stamp_of(name: str) -> tuple[str, tuple[int, ...]] | None:
    """Changes whenever the reference of a task is another one, or has further noise floors."""
    folder = home_of(name)
    if folder is None:
        return None
    path = Path(str(folder / f"{name}.json"))
    files = [path, *sorted(path.parent.glob(f"{name}.floors-*.npz"))]
    return str(path.absolute()), tuple(file.stat().st_mtime_ns for file in files if file.is_file())


def verified(name: str, folder: Traversable | None = None) -> Certificate | None:
    """The certificate of a task's reference, and its arrays as bytes; None without one.

    ``folder``: the only one to search. ``InputError`` where the certificate is damaged, or not that of the arrays.
    """
    folder = folder or home_of(name)
    if folder is None or not (folder / f"{name}.json").is_file():
        return None
    again = f"Reinstall the package, or build the reference again: parvibench reference build {name} (file.py:OBJECT if unregistered)"
    try:
        facts = json.loads((folder / f"{name}.json").read_text())
        expected = facts["sha256"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{folder / f'{name}.json'}: damaged, or no certificate of a reference\n{again}") from None
    file = folder / f"{name}.npz"
    content = file.read_bytes() if file.is_file() else b""
    actual = hashlib.sha256(content).hexdigest()
    if actual != expected:
        raise InputError(
            f"{file}: the reference draws do not match their certificate\n"
            f"expected sha256 {expected}, found {actual}.\n{again}"
        )
    return Certificate(facts, content)
