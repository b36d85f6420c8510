"""A new algorithm or task from the ``templates``: they run unchanged, and each has a test."""

import re
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from parvibench.core import registry
from parvibench.core.errors import InputError


class Scaffold(NamedTuple):
    """Files written, and the next commands."""

    files: tuple[Path, Path]
    run: str
    test: str


def scaffold(kind: str, name: str, folder: Path) -> Scaffold:
    """Write ``name``'s file and its test into a folder; ``InputError`` where name, files or folder do not allow it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", name) or len(name) > 60:
        raise InputError(f"new {kind} {name!r}: a name has letters, digits and single hyphens, such as my-{kind}")
    if name in (registry.algorithms() if kind == "algorithm" else registry.tasks()):
        raise InputError(
            f"new {kind} {name}: there is {'an' if kind == 'algorithm' else 'a'} {kind} of that name already"
        )
    if not folder.is_dir():
        raise InputError(f"--to {folder}: no such folder")
    words = re.split("[-_]", name)
    attribute = "".join(w[0].upper() + w[1:] for w in words) if kind == "algorithm" else "_".join(words).upper()
    module = "_".join(words).lower()
    paths = folder / f"{module}.py", folder / f"test_{module}.py"
    if there := [str(p) for p in paths if p.exists()]:
        raise InputError(f"new {kind} {name}: {', '.join(there)} is there already; nothing is written")
    meant = {"MODULE": module, "NAME": name, "CLASS": attribute, "OBJECT": attribute}
    for path, template in zip(paths, (f"{kind}.py.txt", f"{kind}_test.py.txt"), strict=True):
        text = (files("parvibench.authoring") / "templates" / template).read_text(encoding="utf-8")
        path.write_text(re.sub(rf"\b({'|'.join(meant)})\b", lambda found: meant[found[0]], text), encoding="utf-8")
    place = f"{paths[0]}:{attribute}"
    which = f"--task banana --algorithm {place}" if kind == "algorithm" else f"--task {place} --algorithm mala"
    return Scaffold(paths, f"parvibench run {which}", f"python -m pytest {paths[1]}")
