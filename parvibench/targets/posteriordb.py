"""Posteriors of posteriordb as tasks: ``posteriordb:NAME``.

Magnusson, Torgander, Buerkner, Zhang, Carpenter & Vehtari (2024), arXiv:2407.04967. A posterior is a Stan program, its data
and, for some, 10,000 reference draws. The files are read from a local copy, named by ``PARVIBENCH_POSTERIORDB``, in the
layout of posteriordb; else they are downloaded one by one at a pinned commit, and their SHA-256 verified.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from parvibench.core import registry
from parvibench.core.errors import InputError, ParVIBenchError, UnknownNameError
from parvibench.data.archives import read_member
from parvibench.data.draws.samples import Draws
from parvibench.data.fetch import DataSet, cache_folder, fetch_file

from .densities import label_of
from .stan_models import StanTask, task_of

#: Tasks and patterns of them begin so.
PREFIX = "posteriordb:"
#: Environment variable with a local copy.
FOLDER_VARIABLE = "PARVIBENCH_POSTERIORDB"
#: Where files are downloaded from: the commit and the path follow.
ADDRESS = "https://raw.githubusercontent.com/stan-dev/posteriordb/{commit}/posterior_database/{path}"
#: Hashes of the files at the commit.
MANIFEST = files("parvibench.data") / "posteriordb.txt"
_CITATION = "Magnusson et al. (2024), arXiv:2407.04967; posteriordb {name}"
_MOST_BYTES = 2**28


@dataclass(frozen=True)
class Posterior:
    """An entry of posteriordb."""

    name: str
    model: str  #: name of the program
    data: str  #: name of the data, or empty
    draws: str  #: name of the reference draws, or empty
    keywords: tuple[str, ...]
    dim: int | None  #: numbers of constrained parameters

    @property
    def native(self) -> str:
        """The built-in task of the same posterior, or empty."""
        for row in registry.tasks().values():
            if row.name == self.model.replace("_", "-"):
                return row.name
            if f"posteriordb-{self.data}" in row.data:
                cited = re.search(r"posteriordb ([^;]+)", registry.load_task(row.name).citation)
                if cited is not None and cited[1] == self.name:
                    return row.name
        return ""


@dataclass(frozen=True, kw_only=True)
class PosteriordbTask(StanTask):
    """A posterior of posteriordb."""

    posterior: Posterior

    def given_draws(self) -> Draws | None:
        """Its reference draws, (chains, draws, k), with the names of parameters; None without any.

        Raises:
            InputError, DataMissingError: the file is damaged, or cannot be downloaded.
        """
        if not self.posterior.draws:
            return None
        path = _file(f"reference_posteriors/draws/draws/{self.posterior.draws}.json")
        try:
            chains = json.loads(_content(path))
            names = list(chains[0])
            values = np.array([[chain[name] for name in names] for chain in chains], dtype=np.float64)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise InputError(f"{path}: expected chains of posteriordb, [{{parameter: [values]}}]: {error}") from None
        return Draws(
            values.swapaxes(1, 2), tuple(names), (f"the reference draws of posteriordb, {len(chains)} chains",)
        )


def opened(place: str) -> PosteriordbTask:
    """The task ``posteriordb:NAME``.

    Raises:
        UnknownNameError: there is no such posterior.
        DataMissingError: a file is neither here nor can be downloaded.
        InputError: a file is damaged, or as of ``from_stan``.
    """
    found = posterior(place.removeprefix(PREFIX))
    code = _entry(f"models/info/{found.model}.info.json", "model_implementations", "stan", "model_code")
    data = "{}"
    if found.data:
        data = _content(_file(_entry(f"data/info/{found.data}.info.json", "data_file"))).decode()
    summary = f"posterior {found.name} of posteriordb"
    if found.native:
        summary += f", of which the built-in task {found.native} is a version in PyTorch"
    return task_of(
        PosteriordbTask, label_of(found.name), _file(code), data, f"{PREFIX}{found.name}",
        summary=summary, citation=_CITATION.format(name=found.name), posterior=found,
    )  # fmt: skip


def posterior(name: str) -> Posterior:
    """The entry of that name; errors as of ``opened``."""
    if name not in names():
        raise UnknownNameError("posterior in posteriordb", name, names())
    path = _file(f"posteriors/{name}.json")
    try:
        read = json.loads(_content(path))
        sizes = read.get("dimensions") or {}
        dim = sum(int(np.prod(size)) for size in sizes.values()) or None
        return Posterior(
            name, read["model_name"], read.get("data_name") or "", read.get("reference_posterior_name") or "",
            tuple(read.get("keywords") or ()), dim,
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: no entry of posteriordb: {type(error).__name__}: {error}") from None


def names() -> list[str]:
    """All posteriors, sorted: of the local copy, or of the pinned commit."""
    folder = _folder()
    if folder is not None:
        return sorted(path.stem for path in (folder / "posteriors").glob("*.json"))
    return [path[len("posteriors/") : -len(".json")] for path in _manifest()[1] if path.startswith("posteriors/")]


def matching(pattern: str) -> tuple[list[str], dict[str, str]]:
    """Places of the posteriors that a pattern ``posteriordb:*`` names and that can be run; of the others the reason why not.

    Raises:
        InputError: none can be run.
    """
    places: list[str] = []
    reasons: dict[str, str] = {}
    for name in (n for n in names() if fnmatchcase(f"{PREFIX}{n}", pattern)):
        try:
            registry.load_task(f"{PREFIX}{name}")
            places.append(f"{PREFIX}{name}")
        except ParVIBenchError as error:
            reasons[f"{PREFIX}{name}"] = str(error).split("\n")[0]
    if not places:
        told = "".join(f"\n{place}: {reason}" for place, reason in reasons.items())
        raise InputError(f"{pattern}: no posterior of posteriordb can be run{told or '; none has such a name'}")
    return places, reasons


def rows() -> list[dict[str, Any]]:
    """A summary of every posterior; of those whose entry is not here yet only the name."""
    found = []
    for name in names():
        row: dict[str, Any] = {
            "name": f"{PREFIX}{name}",
            "dim": "",
            "draws": "",
            "built-in": "",
            "status": "not downloaded",
        }
        if _folder() is not None or (cache_folder() / "posteriordb/posteriors" / f"{name}.json").is_file():
            try:
                entry = posterior(name)
                row |= {"dim": entry.dim or "", "draws": "yes" if entry.draws else "no", "built-in": entry.native}
                row["status"] = "here"
            except InputError as error:
                row["status"] = str(error)
        found.append(row)
    return found


def _folder() -> Path | None:
    """The local copy; ``InputError`` where the variable names something else."""
    given = os.environ.get(FOLDER_VARIABLE)
    if not given:
        return None
    folder = next((f for f in (Path(given) / "posterior_database", Path(given)) if (f / "posteriors").is_dir()), None)
    if folder is None:
        raise InputError(f"{FOLDER_VARIABLE}={given}: expected a copy of posteriordb, with a folder 'posteriors'")
    return folder


@cache
def _manifest() -> tuple[str, Mapping[str, str]]:
    """The commit, and hash of each path."""
    commit, *lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    return commit, {path: digest for digest, path in (line.split(" ", 1) for line in lines)}


def _set(path: str) -> DataSet:
    """A file of the pinned commit; ``InputError`` for one that it does not have."""
    commit, known = _manifest()
    path = path if path in known else f"{path}.zip"
    if path not in known:
        raise InputError(f"posteriordb has no file {path.removesuffix('.zip')}")
    kind, _, digest = known[path].rpartition(":")
    file, url = f"posteriordb/{path}", ADDRESS.format(commit=commit, path=path)
    return DataSet(file, file, url, git_blob=digest) if kind else DataSet(file, file, url, digest)


def _file(path: str) -> Path:
    """A file by its path in posteriordb, or its archive ``.zip``, downloaded where there is no local copy."""
    if ".." in Path(path).parts or Path(path).is_absolute():
        raise InputError(f"posteriordb: {path} lies outside of it")
    folder = _folder()
    if folder is None:
        return fetch_file(_set(path))
    found = next((p for p in (folder / path, folder / f"{path}.zip") if p.is_file()), None)
    if found is None:
        raise InputError(f"{folder}: there is no {path}")
    return found


def _content(path: Path) -> bytes:
    return read_member(path, _MOST_BYTES) if path.suffix == ".zip" else path.read_bytes()


def _entry(path: str, *keys: str) -> str:
    """A text within a JSON file."""
    file = _file(path)
    try:
        value = json.loads(_content(file))
        for key in keys:
            value = value[key]
        return str(value)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file}: expected a text at {'.'.join(keys)}: {type(error).__name__}: {error}") from None
