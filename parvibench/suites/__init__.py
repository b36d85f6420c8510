"""Suites that ship with the package (YAML); those that repeat tables of a paper lie in a folder of its name."""

from importlib.resources import files
from importlib.resources.abc import Traversable


def shipped() -> dict[str, Traversable]:
    """All of them: name -> file."""
    return dict(sorted((_suites(files(__name__)) | of_papers()).items()))


def of_papers() -> dict[str, Traversable]:
    """Those that repeat tables and figures of a paper: name -> file."""
    folders = sorted((f for f in files(__name__).iterdir() if f.is_dir()), key=lambda f: f.name)
    return {name: file for folder in folders for name, file in _suites(folder).items()}


def _suites(folder: Traversable) -> dict[str, Traversable]:
    return dict(sorted((f.name.removesuffix(".yaml"), f) for f in folder.iterdir() if f.name.endswith(".yaml")))
