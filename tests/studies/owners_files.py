"""Samples as their owners have them: names in any order, dimensions in any order, Stan's files, columns that number draws.

``python tests/studies/owners_files.py --files 300``. Every case is made from known draws of named coordinates, written by
code that shares nothing with the readers. Right is the array that was meant; a refusal is right where the case has two
readings or none, and must be one line. Anything else is a misreading.
"""

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pandas as pd
import torch

from parvibench.core.errors import ParVIBenchError
from parvibench.data.draws.arrays import Choice
from parvibench.data.draws.sample_formats import FORMATS
from parvibench.data.samples import Draws


@dataclass
class Case:
    """Samples, the coordinates that are wanted of them, and what is right: an array, or a refusal."""

    kind: str
    given: Any  #: an object, or a path
    wanted: tuple[str, ...]
    meant: np.ndarray | None  #: None: to be refused


def style(base: str, index: tuple[int, ...], how: str) -> str:
    """A component's name, its index counted from 0, in a program's style."""
    one = tuple(i + 1 for i in index)
    if not index:
        return base
    return {
        "stan": f"{base}.{'.'.join(map(str, one))}",
        "r": f"{base}[{','.join(map(str, one))}]",
        "arviz": f"{base}[{','.join(map(str, index))}]",
        "spaced": f"{base}[{', '.join(map(str, index))}]",
        "tuple": repr((base, *index)),
    }[how]


def coordinates(chance: Random) -> list[tuple[str, tuple[int, ...]]]:
    """A posterior's variables: scalars, vectors, a matrix."""
    found: list[tuple[str, tuple[int, ...]]] = [
        (name, ()) for name in chance.sample(["mu", "tau", "sigma_y", "Nu"], chance.randint(1, 3))
    ]
    length = chance.randint(2, 4)
    found += [("theta", (i,)) for i in range(length)]
    if chance.random() < 0.4:
        found += [("L", (i, j)) for i in range(2) for j in range(2)]
    return found


def table(path: Path, frame: pd.DataFrame, chance: Random) -> Any:
    """A frame, or a file of it."""
    form = chance.choice(["frame", ".csv", ".parquet"])
    if form == "frame":
        return frame
    path = path.with_suffix(form)
    (frame.to_csv if form == ".csv" else frame.to_parquet)(path, index=False)
    return path


def names(chance: Random, path: Path) -> Case:
    """Named columns in another order and style, with more columns, without one of those wanted, or without names."""
    found = coordinates(chance)
    ours, theirs = (chance.choice(["stan", "r", "arviz", "spaced", "tuple"]) for _ in range(2))
    wanted = tuple(style(*c, ours) for c in found)
    x = np.random.default_rng(chance.randrange(2**32)).normal(size=(40, len(found)))
    order = chance.sample(range(len(found)), len(found))
    frame = pd.DataFrame(x[:, order], columns=[style(*found[i], theirs) for i in order])
    case = chance.choice(["order", "order", "more", "less", "renamed", "none", "default"])
    if case == "more":
        frame.insert(chance.randrange(len(found)), chance.choice(["log_lik.1", "lp__", "accept", "y_rep[3]"]), 1.5)
    if case == "less":
        return Case("names", table(path, frame.drop(columns=frame.columns[0]), chance), wanted, None)
    if case == "renamed":
        return Case("names", table(path, frame.rename(columns={frame.columns[0]: "other"}), chance), wanted, None)
    if case == "none":
        np.save(path.with_suffix(".npy"), x)
        return Case("names", path.with_suffix(".npy"), wanted, x)
    if case == "default":
        return Case(
            "names", table(path, pd.DataFrame(x, columns=[f"V{i + 1}" for i in range(len(found))]), chance), wanted, x
        )
    return Case("names", table(path, frame, chance), wanted, x)


def axes(chance: Random, path: Path) -> Case:
    """Arrays whose dimensions have names, in any order, or none."""
    chains, draws, d = chance.choice([1, 2, 4, 8]), chance.choice([30, 100]), chance.choice([2, 3, 5])
    x = np.random.default_rng(chance.randrange(2**32)).normal(size=(chains, draws, d))
    form = chance.choice(["file", "file", "array", "swapped", "wide", "variables"])
    wanted = tuple(f"theta[{i}]" for i in range(d))
    if form == "file":
        called = chance.choice([("chain", "draw", "k"), ("chains", "draws", "k"), ("Chain", "Iteration", "school")])
        order = chance.sample(range(3), 3)
        with h5py.File(path.with_suffix(".nc"), "w") as file:
            group = file.create_group("posterior") if chance.random() < 0.6 else file
            variable = group.create_dataset("theta", data=x.transpose(order))
            for i, axis in enumerate(order):
                group[called[axis]] = np.arange(x.shape[axis])
                group[called[axis]].make_scale(called[axis])
                variable.dims[i].attach_scale(group[called[axis]])
        return Case("axes", path.with_suffix(".nc"), wanted, x)
    if form == "array":
        np.save(path.with_suffix(".npy"), x)
        return Case("axes", chance.choice([x, torch.tensor(x), path.with_suffix(".npy")]), wanted, x)
    if form == "swapped":
        return Case("axes", x.swapaxes(0, 1), wanted, None)
    if form == "wide":
        return Case("axes", {"theta": np.zeros((200, 300))}, (), None)
    parts = {"theta": x[..., 1:], "mu": x[..., 0]} if chains > 1 else {"theta": x[0, :, 1:], "mu": x[0, :, 0]}
    return Case("axes", parts, ("mu", *(f"theta[{i}]" for i in range(d - 1))), x if chains > 1 else x[0])


def stan(chance: Random, path: Path) -> Case:
    """A file of CmdStan, RStan or PyStan 2, of any method."""
    rng, thin = np.random.default_rng(chance.randrange(2**32)), chance.choice([1, 1, 2, 3])
    found = coordinates(chance)
    x, warm = rng.normal(size=(50, len(found))), 90 + rng.normal(size=(20, len(found)))
    method = chance.choice(
        ["sample", "sample", "sample", "rstan", "laplace", "pathfinder", "variational", "optimize", "fixed"]
    )
    saved = chance.random() < 0.5
    sampler = {
        "laplace": ["log_p__", "log_q__"],
        "pathfinder": ["lp_approx__", "lp__"],
        "variational": ["lp__", "log_p__", "log_g__"],
        "optimize": ["lp__"],
    }.get(method, ["lp__", "accept_stat__", "energy__"])
    said = {"fixed": "sample"}.get(method, method)
    head = f"# stan_version_major = 2\n# method = {said} (Default)\n"
    head += f"#     num_samples = {50 * thin}\n#     num_warmup = {20 * thin}\n#     save_warmup = {chance.choice(['1', 'true']) if saved else chance.choice(['0', 'false', '0 (Default)'])}\n#     thin = {thin}\n"
    head += "#     algorithm = fixed_param\n" if method == "fixed" else "#     algorithm = hmc (Default)\n"
    if method == "rstan":
        head = f"# Samples Generated by Stan\n# chain_id=1\n# iter={70 * thin}\n# warmup={20 * thin}\n# save_warmup={int(saved)}\n# thin={thin}\n"
    adapted = "# Adaptation terminated\n# Step size = 0.7\n# 1.1, 0.9\n" if method in ("sample", "rstan") else ""

    def rows(values: np.ndarray) -> str:
        return "".join(",".join(["-1.5"] * len(sampler) + [repr(float(v)) for v in row]) + "\n" for row in values)

    before = {"variational": "# eta = 1\n" + rows(warm[:1])}.get(
        method, rows(warm) if saved and method in ("sample", "rstan") else ""
    )
    columns = [style(*c, "stan") for c in found]
    text = head + ",".join([*sampler, *columns]) + "\n" + before + adapted + rows(x[:1] if method == "optimize" else x)
    text += "# \n#  Elapsed Time: 0.1 seconds (Warm-up)\n# \n" if chance.random() < 0.7 else ""
    path.with_suffix(".csv").write_bytes(text.replace("\n", chance.choice(["\n", "\r\n"])).encode())
    wanted = tuple(style(*c, chance.choice(["stan", "r"])) for c in found)
    return Case("stan", path.with_suffix(".csv"), wanted, None if method == "optimize" else x)


def numbered(chance: Random, path: Path) -> Case:
    """Tables with columns that number chains and draws, of R, Julia, ArviZ and pandas."""
    chains, draws = chance.choice([2, 3, 4]), chance.choice([10, 25])
    x = np.random.default_rng(chance.randrange(2**32)).normal(size=(chains, draws, 2))
    ids = chance.choice(
        [
            (".chain", ".iteration", ".draw"),
            ("chain", "draw"),
            ("iteration", "chain"),
            ("Chain", "Iteration"),
            ("chain",),
            ("Unnamed: 0",),
            ("chain__", "iter__", "draw__"),
        ]
    )
    count = {
        "chain": np.repeat(np.arange(chains) + 1, draws),
        "iteration": np.tile(np.arange(draws), chains),
        "draw": np.arange(chains * draws),
    }
    frame = pd.DataFrame(x.reshape(-1, 2), columns=["mu", "tau"])
    for name in ids:
        plain = name.strip("._ ").lower().replace("iter", "iteration").replace("iterationation", "iteration")
        plain = "iteration" if ids == ("chain", "draw") and plain == "draw" else plain
        frame.insert(0, name, count.get(plain, count["draw"]))
    meant = x if any("chain" in name.lower() for name in ids) else x.reshape(-1, 2)
    if chance.random() < 0.3 and meant.ndim == 3 and len(ids) > 1:
        frame = frame.sample(frac=1, random_state=chance.randrange(999))
    if chance.random() < 0.15 and len(ids) == 2:
        return Case("numbered", table(path, pd.concat([frame, frame.assign(mu=0.0)]), chance), ("mu", "tau"), None)
    return Case("numbered", table(path, frame, chance), ("mu", "tau"), meant)


def types(chance: Random, path: Path) -> Case:
    """Kinds of numbers, and of what holds them."""
    x = np.random.default_rng(chance.randrange(2**32)).normal(size=(30, 2)).astype(np.float16).astype(float)
    whole = np.arange(60.0).reshape(30, 2)
    frame = pd.DataFrame(x, columns=["mu", "tau"])
    torch.save(torch.tensor(whole).bfloat16(), path.with_suffix(".pt"))
    options: list[tuple[Any, np.ndarray | None]] = [
        (torch.tensor(whole).bfloat16(), whole), (path.with_suffix(".pt"), whole), (x.astype(np.float16), x), (frame.astype("Float64"), x),
        (pd.DataFrame(whole.astype(int), columns=["mu", "tau"]).astype("Int64"), whole), (frame.convert_dtypes(dtype_backend="pyarrow"), x),
        (np.rec.fromarrays(x.T[::-1], names="tau,mu"), x), (frame.to_dict("list"), x), (np.ma.masked_less(x, 0), None), (x > 0, None),
        (x.astype(complex), None), (frame.assign(tau="a"), None), (frame.astype(str), None), (x.astype(object), None),
        (frame.assign(tau=pd.date_range("2001", periods=30)), None),
    ]  # fmt: skip
    given, meant = chance.choice(options)
    return Case("types", given, ("mu", "tau"), meant)


KINDS: dict[str, Callable[[Random, Path], Case]] = {
    "names": names, "axes": axes, "stan": stan, "numbered": numbered, "types": types,
}  # fmt: skip


@dataclass(frozen=True)
class Named:
    """As much of a task as is looked at."""

    coordinates: tuple[str, ...]
    dim: int
    name: str = "owner"


def answer(case: Case) -> tuple[str, str]:
    """``right``, ``refused`` (rightly), ``refused wrongly``, ``misread`` or ``traceback``, and what was said."""
    from parvibench.data.draws.forms import draws_of, in_coordinates

    try:
        if isinstance(case.given, Path):
            read = FORMATS[case.given.suffix](case.given, Choice())
            draws = Draws(np.asarray(read[0], dtype=float), tuple(read[1]))
        else:
            draws = draws_of(case.given)
        dim = len(case.wanted) or draws.values.shape[-1]
        x = in_coordinates(draws, Named(case.wanted, dim)).values
    except (ParVIBenchError, ValueError) as error:
        lines = str(error).count("\n")
        return ("refused" if case.meant is None and not lines else "refused wrongly"), str(error)
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    x = x[:, None] if x.ndim == 1 else x
    right = case.meant is not None and x.shape == case.meant.shape and np.array_equal(x, case.meant)
    return ("right" if right else "misread"), f"read as {x.shape}"


def study(count: int, seed: int = 0) -> tuple[dict[str, Counter[str]], list[str], list[str]]:
    """Per kind the counts of answers, what went wrong, and the words of refusals."""
    chance, counts, wrong, words = Random(seed), defaultdict[str, Counter[str]](Counter), list[str](), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            kind = list(KINDS)[i % len(KINDS)]
            case = KINDS[kind](chance, Path(folder) / f"x{i}")
            got, said = answer(case)
            counts[kind][got] += 1
            if got not in ("right", "refused"):
                wrong.append(f"{kind} {i}: {got}: {said[:200]}; wanted {case.wanted}")
            elif got == "refused":
                words.setdefault(f"{kind}: {said.split(':')[0][:25]}", said[:160])
    return counts, wrong, list(words.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    table_of, problems, refusals = study(given.files, given.seed)
    print(json.dumps(table_of, indent=1))
    print(f"{given.files} cases, {len(problems)} problems")
    print("\n".join([*problems, "refused in these words:", *refusals]))
    raise SystemExit(bool(problems))
