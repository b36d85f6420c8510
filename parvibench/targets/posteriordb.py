"""Posteriors of posteriordb as tasks: ``posteriordb:NAME``.

Magnusson, Torgander, Buerkner, Zhang, Carpenter & Vehtari (2024), arXiv:2407.04967. A posterior is a Stan program, its data
and, for some, 10,000 reference draws. The files are read from a local copy, named by ``PARVIBENCH_POSTERIORDB``, in the
layout of posteriordb; else they are downloaded one by one at a pinned commit, and their SHA-256 verified.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parvibench.core import registry
from parvibench.core.errors import DataMissingError, InputError, ParVIBenchError, UnknownNameError
from parvibench.data.archives import read_member
from parvibench.data.draws.arrays import Draws
from parvibench.data.draws.naming import listed
from parvibench.data.fetch import DataSet, cache_folder, fetch_file

from .densities import label_of
from .stan_models import StanTask, task_of
from .stan_programs import Array

PREFIX = registry.POSTERIORDB  #: Places and patterns of them begin so.
FOLDER_VARIABLE = "PARVIBENCH_POSTERIORDB"  #: Environment variable with a local copy.
#: What a run needs.
NEEDED = (
    f"posteriordb is needed: set {FOLDER_VARIABLE} to a clone of https://github.com/stan-dev/posteriordb, or go online"
)
#: Where files are downloaded from, and their hashes at the commit, which is the first line.
ADDRESS = "https://raw.githubusercontent.com/stan-dev/posteriordb/{commit}/posterior_database/{path}"
MANIFEST = files("parvibench.data") / "posteriordb.txt"
_CITATION = "Magnusson et al. (2024), arXiv:2407.04967; posteriordb {name}"
_MOST_BYTES = 2**28


class Posterior(NamedTuple):
    """An entry of posteriordb."""

    name: str
    model: str  #: name of the program
    data: str  #: name of the data, or empty
    draws: str  #: name of the reference draws, or empty


def _standard_effects(theta: Array, draws: Mapping[str, Array], data: Mapping[str, Any]) -> Array:
    """The inverse of ``theta = theta_trans * tau + mu``."""
    return (theta - draws["mu"][..., None]) / draws["tau"][..., None]


def _standard_process(f: Array, draws: Mapping[str, Array], data: Mapping[str, Any]) -> Array:
    """The inverse of ``f = cholesky_decompose(gp_exp_quad_cov(x, alpha, rho) + 1e-10 I) * f_tilde``."""
    apart = np.subtract.outer(data["x"], data["x"])
    scale, length = (draws[name][..., None, None] for name in ("alpha", "rho"))
    covariance = scale**2 * np.exp(-0.5 * (apart / length) ** 2) + 1e-10 * np.eye(len(apart))
    return np.asarray(np.linalg.solve(np.linalg.cholesky(covariance), f[..., None])[..., 0], dtype=np.float64)


#: Programs whose reference draws are of effects (..., k) -> these, the parameter, and it of effects, draws by name and data.
_STANDARDISED: dict[str, tuple[str, str, Callable[..., Array]]] = {
    "eight_schools_noncentered": ("theta", "theta_trans", _standard_effects),
    "gp_pois_regr": ("f", "f_tilde", _standard_process),
}


@dataclass(frozen=True, kw_only=True)
class PosteriordbTask(StanTask):
    """A posterior of posteriordb."""

    posterior: Posterior

    def given_draws(self) -> Draws | None:
        """Its reference draws, (chains, draws, k), with the names of parameters; None without any."""
        if not self.posterior.draws:
            return None
        chains = _json(path := f"reference_posteriors/draws/draws/{self.posterior.draws}.json")
        try:
            names = list(chains[0])
            values = np.array([[chain[name] for name in names] for chain in chains], dtype=np.float64).swapaxes(1, 2)
            said = [f"the reference draws of posteriordb, {len(chains)} chains"]
            effects, parameter, inverse = _STANDARDISED.get(self.posterior.model, ("", "", None))
            if inverse and (places := [i for i, name in enumerate(names) if name.startswith(f"{effects}[")]):
                of = {name: values[..., i] for i, name in enumerate(names)}
                values[..., places] = inverse(values[..., places], of, json.loads(self.model.data))
                names = [name.replace(f"{effects}[", f"{parameter}[") for name in names]
                said.append(f"{parameter} computed from {effects}")
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise InputError(f"posteriordb, {path}: expected chains, [{{parameter: [values]}}]: {error!r}") from None
        return Draws(values, tuple(names), tuple(said))


def opened(place: str) -> PosteriordbTask:
    """The task ``posteriordb:NAME``; ``UnknownNameError`` where there is no such posterior.

    ``DataMissingError`` where a file can be neither read nor downloaded, ``InputError`` for a damaged one, and as of ``from_stan``.
    """
    found = posterior(place.removeprefix(PREFIX))
    try:
        code = _json(f"models/info/{found.model}.info.json")["model_implementations"]["stan"]["model_code"]
        data = _json(f"data/info/{found.data}.info.json")["data_file"] if found.data else ""
    except (TypeError, KeyError) as error:
        raise InputError(f"{place}: the information on its model or data lacks {error}") from None
    summary = f"posterior {found.name} of posteriordb"
    if native := native_of(found.name):
        summary += f"; the built-in task {native} is the same posterior in PyTorch"
    return task_of(
        PosteriordbTask, label_of(found.name), _file(code), _text(data) if data else "{}", f"{PREFIX}{found.name}",
        summary=summary, citation=_CITATION.format(name=found.name), posterior=found,
    )  # fmt: skip


def posterior(name: str) -> Posterior:
    """The entry of that name; errors as of ``opened``."""
    if name not in names():
        raise UnknownNameError("posterior in posteriordb", name, names())
    entry = _json(f"posteriors/{name}.json")
    try:
        draws = entry.get("reference_posterior_name")
        return Posterior(name, entry["model_name"], entry.get("data_name") or "", draws or "")
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{PREFIX}{name}: the entry is damaged: {error!r}") from None


def native_of(name: str) -> str:
    """The built-in task of the same posterior as the entry of that name; empty without one."""
    if f"posteriors/{name}.json" not in _manifest()[1]:
        return ""
    data, _, model = name.partition("-")
    for row in registry.tasks().values():
        if row.name == model.replace("_", "-"):
            return row.name
        if f"posteriordb-{data}" in row.data:
            cited = re.search(r"posteriordb ([^;]+)", registry.load_task(row.name).citation)
            if cited is not None and cited[1] == name:
                return row.name
    return ""


def names() -> list[str]:
    """All posteriors, sorted: of the local copy, or of the pinned commit."""
    folder = _folder()
    paths = map(Path, _manifest()[1]) if folder is None else (folder / "posteriors").iterdir()
    return sorted(path.stem for path in paths if path.parent.name == "posteriors" and path.suffix == ".json")


def loaded(patterns: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Names of the tasks behind places and patterns ``posteriordb:*``; and which cannot be run, a line for each reason.

    ``InputError`` where none can be run, and as of ``opened`` for a single posterior.
    """
    if len(patterns) == 1 and "*" not in patterns[0]:
        return {patterns[0]: [registry.load_task(patterns[0]).name]}, []
    known, reasons = names(), dict[str, list[str]]()
    tasks: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    offline = _folder() is None and not any((cache_folder() / "posteriordb/posteriors").glob("*.json"))
    for pattern in patterns:
        for name in [n for n in known if fnmatchcase(f"{PREFIX}{n}", pattern)] or [pattern.removeprefix(PREFIX)]:
            try:
                if name not in known:
                    raise InputError(f"not in {_folder() or 'posteriordb'}")
                tasks[pattern].append(registry.load_task(f"{PREFIX}{name}").name)
            except ParVIBenchError as error:
                reasons.setdefault(str(error).split("\n")[0], []).append(name)
                if isinstance(error, DataMissingError) and offline and not any(tasks.values()):
                    raise InputError(f"{NEEDED}: {reasons.popitem()[0]}") from None
    left_out = [
        f"{PREFIX}{listed(which)} {'is' if len(which) == 1 else 'are'} left out: {why}"
        for why, which in reasons.items()
    ]
    if not any(tasks.values()):
        raise InputError("\n".join(["no posterior of posteriordb can be run", *left_out]))
    return tasks, left_out


def rows() -> list[dict[str, Any]]:
    """A summary of every posterior; of those whose entry is not here yet only the name."""
    found = []
    for name in names():
        row = {"name": name, "status": "not downloaded", "draws": "", "built-in": ""}
        if _folder() is not None or (cache_folder() / f"posteriordb/posteriors/{name}.json").is_file():
            try:
                entry = posterior(name)
                row |= {"status": "here", "draws": "yes" if entry.draws else "no", "built-in": native_of(name)}
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
    """The commit, and the hash of each path: SHA-256, or git's where it begins with ``git:``."""
    commit, *lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    return commit, {path: digest for digest, path in (line.split(" ", 1) for line in lines)}


def _file(path: str) -> Path:
    """A file by its path in posteriordb, or its archive ``.zip``, downloaded where there is no local copy."""
    folder, (commit, known) = _folder(), _manifest()
    paths = [path, f"{path}.zip"]
    held = [p for p in paths if (p in known if folder is None else (folder / p).is_file())]
    if not held or ".." in Path(path).parts or Path(path).is_absolute():
        raise InputError(f"{folder or 'posteriordb'}: there is no {path}")
    if folder is not None:
        return folder / held[0]
    name, url = f"posteriordb/{held[0]}", ADDRESS.format(commit=commit, path=held[0])
    kind, _, digest = known[held[0]].rpartition(":")
    return fetch_file(DataSet(name, name, url, git_blob=digest) if kind else DataSet(name, name, url, digest))


def _text(path: str) -> str:
    file = _file(path)
    return (read_member(file, _MOST_BYTES) if file.suffix == ".zip" else file.read_bytes()).decode(errors="replace")


def _json(path: str) -> Any:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"posteriordb, {path}: expected JSON: {error}") from None
