"""Suites that ship with the package (YAML): those of a paper in a folder of its own."""

from importlib.resources import files
from importlib.resources.abc import Traversable


def shipped() -> dict[str, Traversable]:
    """Name -> file."""
    folder = files(__name__)
    found = [f for place in (folder, *folder.iterdir()) if place.is_dir() for f in place.iterdir()]
    named = {f.name.removesuffix(".yaml"): f for f in found if f.name.endswith(".yaml")}
    return {name: named[name] for name in sorted(named)}
