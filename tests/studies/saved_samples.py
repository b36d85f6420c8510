"""Files of samples as programs save them, through ``parvibench evaluate``: read as meant, or refused in one line.

``python tests/studies/saved_samples.py --files 200``. Written from the formats of the programs (CmdStan, RStan, posterior,
tidybayes, ggmcmc, coda, JAGS, brms, PyMC and ArviZ, NumPyro, Pyro, emcee, dynesty, GetDist, Turing, TFP, pandas, polars),
without a look at the readers. The right value is the array that the file was made of. Kinds that need ArviZ, xarray,
zarr or polars are left out where these are not installed; ``--packages FOLDER`` adds a folder to the import path.
"""

import argparse
import contextlib
import io
import json
import pickle
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import h5py
import numpy as np
import pandas as pd
import torch

from parvibench import cli
from parvibench.api import evaluate as evaluating
from parvibench.cli import shared
from parvibench.metrics.evaluate import _chains

TASKS = """
import parvibench as pb
def density(x): return -0.5 * (x * x).sum()
five = pb.task(density, dim=5, name="five", coordinates=("mu", "tau", "theta[0]", "theta[1]", "theta[2]"))
plain = pb.task(density, dim=3, name="plain")
one = pb.task(density, dim=1, name="one")
"""
NAMES = ["mu", "tau", "theta[0]", "theta[1]", "theta[2]"]
STAN = ["mu", "tau", "theta.1", "theta.2", "theta.3"]


class Saved(NamedTuple):
    """Files, and what they mean."""

    paths: list[Path]
    meant: (
        np.ndarray | None
    )  #: (chains, draws, d), or (n, d) where the file has no chains; None: only a refusal is right
    task: str = "five"
    options: tuple[str, ...] = ()
    loose: float = 1e-9  #: relative rounding of the format


class Made:
    """Random draws and the ways of writing them; every method that begins with ``kind_`` is one."""

    def __init__(self, chance: Random, folder: Path) -> None:
        self.chance, self.folder = chance, folder
        self.rng = np.random.default_rng(chance.randrange(2**32))
        self.c, self.n = chance.choice([2, 3, 4]), chance.choice([20, 50, 101])
        scale = np.array([1.0, 3.0, 0.1, 10.0, 1.0])
        self.x = self.rng.normal(size=(self.c, self.n, 5)) * scale + np.arange(5) * 100
        self.flat = self.x.reshape(-1, 5)
        self.sites = {"mu": self.x[..., 0], "tau": self.x[..., 1], "theta": self.x[..., 2:]}

    def at(self, name: str) -> Path:
        return self.folder / name

    def frame(self, names: list[str] = NAMES, ids: tuple[str, ...] = (), first: int = 1) -> pd.DataFrame:
        """Rows of all chains under each other, with columns of chain and draw if named."""
        chain, draw = (v.ravel() + first for v in np.indices((self.c, self.n)))
        columns = {k: v for k, v in zip(ids, (chain, draw, np.arange(chain.size) + first), strict=False)}
        return pd.DataFrame({**columns, **dict(zip(names, self.flat.T, strict=True))})

    def text(self, frame: pd.DataFrame, name: str = "x.csv", head: str = "", tail: str = "", **options: Any) -> Path:
        path = self.at(name)
        path.write_text(head + frame.to_csv(**{"index": False, **options}) + tail)
        return path

    def shuffled(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[self.chance.sample(list(frame.columns), frame.shape[1])]

    # Stan -----------------------------------------------------------------------------------------------------------

    def stan(
        self, x: np.ndarray, name: str, extra: list[str], config: str, tail: str = "", mid: str = "", before: int = 0
    ) -> Path:
        rows = [[*self.rng.uniform(size=len(extra)), *row] for row in x]
        lines = [",".join(repr(float(v)) for v in row) for row in rows]
        if mid:
            lines.insert(before, mid)
        head = f"# stan_version_major = 2\n# model = m_model\n# method = {config}\n# data\n#   file = d.json\n"
        path = self.at(name)
        path.write_text(head + ",".join([*extra, *STAN]) + "\n" + "\n".join(lines) + "\n" + tail)
        return path

    SAMPLER = ("lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__", "energy__")
    ADAPTED = "# Adaptation terminated\n# Step size = 0.9\n# Diagonal elements of inverse mass matrix:\n# 1, 1, 1, 1, 1"
    TIMES = "# \n#  Elapsed Time: 0.1 seconds (Warm-up)\n#                0.1 seconds (Sampling)\n# \n"

    def sample_config(self, saved: int, warm: int, thin: int = 1) -> str:
        return (
            f"sample (Default)\n#   sample\n#     num_samples = {self.n * thin}\n#     num_warmup = {warm}\n"
            f"#     save_warmup = {saved}\n#     thin = {thin}\n#     algorithm = hmc (Default)"
        )

    def kind_cmdstan_chains(self) -> Saved:
        config = self.sample_config(0, 1000, self.chance.choice([1, 2]))
        paths = [
            self.stan(x, f"o_{i}.csv", list(self.SAMPLER), config, self.TIMES, self.ADAPTED)
            for i, x in enumerate(self.x)
        ]
        return Saved(paths, self.x)

    def kind_cmdstan_saved_warmup(self) -> Saved:
        warm, paths = self.chance.choice([10, 40]), []
        for i, x in enumerate(self.x):
            rows = np.concatenate([self.rng.normal(size=(warm, 5)) + 50, x])
            config = self.sample_config(1, warm)
            paths.append(self.stan(rows, f"o_{i}.csv", list(self.SAMPLER), config, self.TIMES, self.ADAPTED, warm))
        return Saved(paths, self.x)

    def kind_cmdstan_pathfinder(self) -> Saved:
        config = f"pathfinder\n#   pathfinder\n#     num_psis_draws = {self.n}\n#     num_paths = 4"
        return Saved([self.stan(self.x[0], "p.csv", ["lp_approx__", "lp__", "path__"], config)], self.x[0])

    def kind_cmdstan_advi(self) -> Saved:
        rows = np.concatenate([self.x[0].mean(0, keepdims=True), self.x[0]])
        config = f"variational\n#   variational\n#     output_samples = {self.n}"
        return Saved(
            [
                self.stan(
                    rows,
                    "v.csv",
                    ["lp__", "log_p__", "log_g__"],
                    config,
                    mid="# Stepsize adaptation complete.\n# eta = 1",
                )
            ],
            self.x[0],
        )

    def kind_cmdstan_optimize(self) -> Saved:
        return Saved([self.stan(self.x[0, :1], "o.csv", ["lp__"], "optimize\n#   optimize\n#     jacobian = 0")], None)

    def kind_cmdstanpy_frame(self) -> Saved:
        frame = self.frame(
            [n.replace("[0]", "[1]").replace("[1]", "[1]") for n in ["mu", "tau", "theta[1]", "theta[2]", "theta[3]"]],
            ("chain__", "iter__", "draw__"),
        )
        frame.insert(3, "lp__", self.rng.normal(size=len(frame)))
        return Saved([self.text(frame.astype({"chain__": float}), index=self.chance.random() < 0.5)], self.x)

    def kind_pystan3_frame(self) -> Saved:
        frame = self.frame(STAN).rename_axis("draws")
        frame.insert(0, "lp__", 1.0)
        frame.insert(1, "divergent__", 0.0)
        return Saved([self.text(frame, index=True)], self.flat)

    def kind_rstan_data_frame(self) -> Saved:
        frame = self.frame(["mu", "tau", "theta[1]", "theta[2]", "theta[3]"])
        frame["lp__"] = -1.5
        frame.index += 1
        return Saved([self.text(frame, index=True, quoting=2)], self.flat)

    # R --------------------------------------------------------------------------------------------------------------

    def kind_posterior_draws_df(self) -> Saved:
        frame = self.frame(["mu", "tau", "theta[1]", "theta[2]", "theta[3]"], (".chain", ".iteration", ".draw"))
        last = [c for c in frame if c.startswith(".")]
        return Saved(
            [self.text(frame[[c for c in frame if c not in last] + last], quoting=2, index=self.chance.random() < 0.5)],
            self.x,
        )

    def long(self, ids: tuple[str, ...], names: list[str], variable: str, value: str) -> pd.DataFrame:
        frame = self.frame(names, ids).melt(id_vars=list(ids), var_name=variable, value_name=value)
        return frame if self.chance.random() < 0.7 else frame.sort_values(list(ids)[:2], kind="stable")

    def kind_tidybayes_gathered(self) -> Saved:
        names = ["mu", "tau", "theta[1]", "theta[2]", "theta[3]"]
        return Saved([self.text(self.long((".chain", ".iteration", ".draw"), names, ".variable", ".value"))], self.x)

    def kind_ggmcmc(self) -> Saved:
        frame = self.long(
            ("Chain", "Iteration"), ["mu", "tau", "theta[1]", "theta[2]", "theta[3]"], "Parameter", "value"
        )
        return Saved([self.text(frame[["Iteration", "Chain", "Parameter", "value"]])], self.x)

    def kind_spread_draws(self) -> Saved:
        frame = self.frame(NAMES, (".chain", ".iteration", ".draw")).melt(
            id_vars=[".chain", ".iteration", ".draw", "mu", "tau"], var_name="i", value_name="theta"
        )
        frame["i"] = frame["i"].str[6].astype(int) + 1
        return Saved([self.text(frame)], self.x)

    def kind_coda_matrix(self) -> Saved:
        frame = self.frame(["mu", "tau", "theta[1]", "theta[2]", "theta[3]"], ("CHAIN", "ITER"))
        frame["deviance"] = 3.0
        return Saved([self.text(frame)], self.x)

    def kind_csv2(self) -> Saved:
        return Saved([self.text(self.frame(), sep=";", decimal=",")], self.flat)

    def kind_named_chain_strings(self) -> Saved:
        frame = self.frame(NAMES, ("chain", "iteration"))
        frame["chain"] = "chain:" + frame["chain"].astype(str)
        return Saved([self.text(frame)], self.x)

    def kind_warmup_column(self) -> Saved:
        frame = self.frame(NAMES, ("chain", "iteration"))
        warm = frame.assign(**{n: 7.0 for n in NAMES})
        name = self.chance.choice(["warmup", "is_warmup", "tune", ".warmup", "burnin"])
        both = pd.concat([warm.assign(**{name: True}), frame.assign(**{name: False})]).sort_values(
            "chain", kind="stable"
        )
        return Saved([self.text(both)], self.x)

    def kind_coda_text(self) -> Saved:
        path = self.at("CODAchain1.txt")
        path.write_text("".join(f"{i} {v}\n" for v_ in self.x[0].T for i, v in enumerate(v_)))
        return Saved([path], self.x[0])

    # PyMC, ArviZ -----------------------------------------------------------------------------------------------------

    def idata(self, **groups: Any) -> Any:
        import arviz

        return arviz.from_dict(posterior=self.sites, sample_stats={"lp": self.x[..., 0]}, **groups)

    def kind_inferencedata_netcdf(self) -> Saved:
        warm = {k: v[:, :7] + 5 for k, v in self.sites.items()}
        groups = self.chance.choice(
            [{}, {"prior": {"mu": self.x[..., 1]}}, {"warmup_posterior": warm, "save_warmup": True}]
        )
        self.idata(**groups).to_netcdf(str(self.at("i.nc")), engine="h5netcdf")
        return Saved([self.at("i.nc")], self.x)

    def kind_inferencedata_zarr(self) -> Saved:
        self.idata().to_zarr(str(self.at("i.zarr")))
        return Saved([self.at("i.zarr")], self.x)

    def kind_dataset_transposed(self) -> Saved:
        data = self.idata().posterior.transpose(
            *self.chance.choice([("draw", "chain", ...), (..., "draw", "chain"), (..., "chain", "draw")])
        )
        data.to_netcdf(self.at("d.nc"), engine="h5netcdf", invalid_netcdf=True)
        return Saved([self.at("d.nc")], self.x)

    def kind_dataset_transformed(self) -> Saved:
        data = self.idata().posterior.assign(tau_log__=lambda d: d["mu"] * 2).astype("float32")
        data.to_netcdf(self.at("d.nc"), engine="h5netcdf")
        return Saved([self.at("d.nc")], self.x, loose=1e-6)

    def kind_extracted(self) -> Saved:
        import arviz

        data = arviz.extract(self.idata()).reset_index("sample")
        data.to_netcdf(self.at("e.nc"), engine="h5netcdf")
        return Saved([self.at("e.nc")], self.x)

    def kind_one_data_array(self) -> Saved:
        import xarray

        dims = self.chance.choice([("chain", "draw"), ("draw", "chain")])
        x = self.x[..., :3] if dims[0] == "chain" else self.x[..., :3].transpose(1, 0, 2)
        xarray.DataArray(x, dims=(*dims, "parameter"), name="samples").to_netcdf(self.at("a.nc"), engine="h5netcdf")
        return Saved([self.at("a.nc")], self.x[..., :3], "plain")

    def kind_posterior_long_csv(self) -> Saved:
        return Saved([self.text(self.idata().posterior.to_dataframe(), index=True)], self.x)

    def kind_idata_frame_csv(self) -> Saved:
        return Saved([self.text(self.idata().to_dataframe())], self.x)

    def kind_emcee_backend(self) -> Saved:
        with h5py.File(self.at("b.h5"), "w") as file:
            file["mcmc/chain"], file["mcmc/log_prob"] = self.x.transpose(1, 0, 2), self.x[..., 0].T
        return Saved([self.at("b.h5")], self.x)

    # Arrays ----------------------------------------------------------------------------------------------------------

    def kind_npz_sites(self) -> Saved:
        one = self.chance.random() < 0.5
        sites = {k: v.reshape(-1, *v.shape[2:]) if one else v for k, v in self.sites.items()}
        order = self.chance.sample(list(sites), 3)
        np.savez(self.at("s.npz"), **{k: sites[k] for k in order})
        return Saved([self.at("s.npz")], self.flat if one else self.x)

    def kind_npz_unnamed(self) -> Saved:
        np.savez_compressed(self.at("s.npz"), self.flat[:, :3])
        return Saved([self.at("s.npz")], self.flat[:, :3], "plain")

    def kind_npz_chain_members(self) -> Saved:
        np.savez(self.at("s.npz"), **{f"chain_{i}": x[:, :3] for i, x in enumerate(self.x)})
        return Saved([self.at("s.npz")], self.x[..., :3], "plain")

    def kind_npz_weighted(self) -> Saved:
        name = self.chance.choice(["weights", "logwt", "log_weights", "weight"])
        np.savez(
            self.at("s.npz"),
            samples=self.flat[:, :3],
            logl=self.flat[:, 0],
            **{name: self.rng.normal(size=len(self.flat))},
        )
        return Saved([self.at("s.npz")], None, "plain")

    def kind_weighted_csv(self) -> Saved:
        name = self.chance.choice(["weight", "weights", "log_weight", "importance_weights", "w", "mult"])
        frame = self.frame().assign(**{name: self.rng.uniform(size=len(self.flat))})
        return Saved([self.text(frame)], None)

    def kind_warmup_flagged(self) -> Saved:
        name = self.chance.choice(["is_warmup", "warmup", ".warmup", "burnin", "tune"])
        frame = self.frame().assign(**{name: np.arange(len(self.flat)) < 5})
        return Saved([self.text(frame.astype({name: int}))], None)

    def kind_emcee_array(self) -> Saved:
        np.save(self.at("c.npy"), self.x[..., :3].transpose(1, 0, 2))
        return Saved(
            [self.at("c.npy")], self.x[..., :3], "plain", self.chance.choice([(), ("--axes", "draw,chain,dim")])
        )

    def kind_julia_array(self) -> Saved:
        np.save(self.at("c.npy"), self.x[..., :3].transpose(1, 2, 0))
        return Saved([self.at("c.npy")], self.x[..., :3], "plain")

    def kind_npy_types(self) -> Saved:
        x = self.x[..., :3].astype(self.chance.choice(["float32", "float16", ">f8", "int64", "float64"]))
        x = x if self.chance.random() < 0.5 else x.reshape(-1, 3)
        np.save(self.at("c.npy"), np.asfortranarray(x))
        return Saved([self.at("c.npy")], x.astype(float), "plain")

    def kind_npy_records(self) -> Saved:
        np.save(self.at("r.npy"), self.shuffled(self.frame()).to_records(index=False))
        return Saved([self.at("r.npy")], self.flat)

    def kind_npy_dictionary(self) -> Saved:
        np.save(self.at("o.npy"), np.array(self.sites, dtype=object), allow_pickle=True)
        return Saved([self.at("o.npy")], None)

    def kind_pickle(self) -> Saved:
        name = self.chance.choice(["s.pkl", "s.pickle", "s.npy", "s.pt", "s.csv", "s.npz", "s.nc", "s.parquet"])
        self.at(name).write_bytes(pickle.dumps(self.sites))
        return Saved([self.at(name)], None)

    def kind_torch(self) -> Saved:
        kind = self.chance.choice(["tensor", "sites", "bfloat16", "samples", "list"])
        sites = {k: torch.tensor(v) for k, v in self.sites.items()}
        x = torch.tensor(self.x[..., :3])
        x = x.bfloat16() if kind == "bfloat16" else x
        torch.save({"sites": sites, "samples": {"samples": x}, "list": list(x)}.get(kind, x), self.at("t.pt"))
        return Saved(
            [self.at("t.pt")], self.x if kind == "sites" else x.double().numpy(), "five" if kind == "sites" else "plain"
        )

    def kind_flat_one(self) -> Saved:
        x = self.flat[:, 0]
        path = self.at(self.chance.choice(["o.npy", "o.csv", "o.txt"]))
        np.save(path, x) if path.suffix == ".npy" else np.savetxt(path, x, fmt="%.17g")
        return Saved([path], x[:, None], "one")

    def kind_savetxt(self) -> Saved:
        delimiter, name = self.chance.choice(
            [(" ", "s.txt"), (",", "s.csv"), (" ", "s.csv"), ("\t", "s.tsv"), ("\t", "s.csv"), (", ", "s.csv")]
        )
        named = self.chance.random() < 0.5
        x = self.flat if named else self.flat[:, :3]
        np.savetxt(self.at(name), x, delimiter=delimiter, fmt="%.17g", header=delimiter.join(NAMES) if named else "")
        return Saved([self.at(name)], x, "five" if named else "plain")

    def kind_getdist(self) -> Saved:
        rows = np.column_stack([self.rng.integers(1, 9, len(self.flat)), self.flat[:, 0], self.flat[:, 1]])
        np.savetxt(self.at("chain_1.txt"), rows)  # weight, -log posterior, one parameter: no draws in three dimensions
        return Saved([self.at("chain_1.txt")], None, "plain")

    # Tables ----------------------------------------------------------------------------------------------------------

    def kind_turing(self) -> Saved:
        frame = self.frame(["mu", "tau", "theta[1]", "theta[2]", "theta[3]"], ("iteration", "chain"))
        frame["iteration"], frame["chain"] = frame["chain"] + 500, frame["iteration"]
        frame = frame.assign(lp=1.0, n_steps=7, is_accept=True, hamiltonian_energy=2.0, numerical_error=False)
        return Saved([self.text(frame.replace({True: "true", False: "false"}))], self.x)

    def kind_pandas_header(self) -> Saved:
        frame = pd.DataFrame(self.flat[:, :3])
        return Saved([self.text(frame, index=self.chance.random() < 0.5)], self.flat[:, :3], "plain")

    def kind_reordered(self) -> Saved:
        style = self.chance.choice(
            ["theta[{}]", "theta.{}", "theta_{}", "theta__{}", "theta{}", "theta({})", "theta {}"]
        )
        first = self.chance.choice([0, 1])
        names = ["mu", "tau", *(style.format(i + first) for i in range(3))]
        return Saved([self.text(self.shuffled(self.frame(names)))], self.flat)

    def kind_chains_in_own_order(self) -> Saved:
        return Saved(
            [self.text(self.shuffled(pd.DataFrame(x, columns=NAMES)), f"c{i}.csv") for i, x in enumerate(self.x)],
            self.x,
        )

    def kind_interleaved(self) -> Saved:
        frame = self.frame(NAMES, ("chain", "draw")).sort_values(["draw", "chain"], kind="stable")
        frame = frame.sample(frac=1, random_state=1) if self.chance.random() < 0.3 else frame
        path = self.at("i.parquet") if self.chance.random() < 0.5 else None
        if path is None:
            return Saved([self.text(frame)], self.x)
        frame.set_index(["chain", "draw"]).to_parquet(path)
        return Saved([path], self.x)

    def kind_unequal_chains(self) -> Saved:
        frame = self.frame(NAMES, ("chain", "draw"))
        return Saved([self.text(frame.iloc[:-5])], None)

    def kind_parquet(self) -> Saved:
        frame = self.shuffled(self.frame())
        kind = self.chance.choice(["float32", "Float64", "float64", "polars", "category"])
        if kind == "polars":
            import polars

            polars.DataFrame({k: frame[k].to_numpy() for k in frame}).write_parquet(self.at("p.parquet"))
        else:
            frame = frame.astype("float64" if kind == "category" else kind)
            frame = (
                frame.assign(chain=pd.Categorical(["a", "b"] * (len(frame) // 2) + ["a"] * (len(frame) % 2)))
                if kind == "category"
                else frame
            )
            frame.to_parquet(self.at("p.parquet"))
        meant = None if kind == "category" and len(frame) % 2 else self.flat
        if kind == "category" and meant is not None:
            meant = np.stack([self.flat[::2], self.flat[1::2]])
        return Saved([self.at("p.parquet")], meant, loose=1e-6)

    def kind_missing(self) -> Saved:
        frame = self.frame()
        frame.iloc[3, 2] = np.nan
        return Saved([self.text(frame, na_rep=self.chance.choice(["NA", "", "nan", "NULL"]))], None)

    def kind_density_as_coordinate(self) -> Saved:
        name = self.chance.choice(["lp__", "log_prob", "logp", "lp", "loglike", "chain", ".draw", "", "weight"])
        frame = pd.DataFrame({name: np.arange(self.n) % 2, "x": self.x[0, :, 0], "y": self.x[0, :, 1]})
        return Saved([self.text(frame)], None, "plain")

    def kind_json(self) -> Saved:
        content = self.chance.choice([
            {k: v.tolist() for k, v in self.sites.items()}, self.frame().to_dict("records"), self.flat.tolist(),
            {"posterior": {"content": self.frame().to_dict("list")}},
        ])  # fmt: skip
        self.at("s.json").write_text(json.dumps(content))
        return Saved([self.at("s.json")], self.flat)

    def kind_other_endings(self) -> Saved:
        name = self.chance.choice(["s.csv.gz", "s.feather", "s.rds", "s.mat", "s.jsonl", "s.xlsx", "s.arrow", "s.dat"])
        self.at(name).write_bytes(self.rng.bytes(300))
        return Saved([self.at(name)], None)


def ask(saved: Saved, tasks: Path) -> tuple[int, str, np.ndarray | None]:
    """Exit code, output, and the array that reached the metrics."""
    said, seen = io.StringIO(), []

    def evaluate(task: Any, values: torch.Tensor, *_: Any) -> dict[str, Any]:
        _chains(values, task)  # refuses another number of columns
        seen.append(values.double().numpy())
        return {"task": "t", "n": len(values), "verdict": "", "metrics": []}

    sys.argv = [
        "parvibench",
        "evaluate",
        "--task",
        f"{tasks}:{saved.task}",
        *map(str, saved.paths),
        "--json",
        *saved.options,
    ]
    shared.console.file, own = said, evaluating.evaluate_samples
    evaluating.evaluate_samples, code = evaluate, 0
    try:
        with contextlib.redirect_stdout(said):
            cli.main()
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException as error:
        return -1, f"Traceback: {type(error).__name__}: {error}", None
    finally:
        evaluating.evaluate_samples, shared.console._file = own, None
    return code, said.getvalue(), seen[0] if seen else None


def judged(saved: Saved, code: int, said: str, read: np.ndarray | None) -> str:
    """``right``, ``refused``, or what went wrong."""
    if code < 0 or "Traceback" in said:
        return f"traceback: {said[-200:]}"
    if code == 2:
        return "refused" if said.strip().count("\n") == 0 else f"{said.count(chr(10))} lines: {said}"
    if read is not None and not np.isfinite(read).all():
        return "refused"  # by its values, which the replaced judgement would have seen
    if read is None:
        return f"exit code {code}: {said}"
    if saved.meant is None:
        return f"misread: {read.shape} where nothing can be read"
    meant = saved.meant if saved.meant.ndim == read.ndim else saved.meant.reshape(-1, saved.meant.shape[-1])
    if read.ndim == 3 and saved.meant.ndim == 2:
        return f"misread: {read.shape[0]} chains where there are none"
    if read.shape != meant.shape or not np.allclose(read, meant, rtol=saved.loose, atol=0):
        return f"misread: {read.shape} as {saved.meant.shape}"
    return "right" if read.ndim == saved.meant.ndim or saved.meant.shape[0] == 1 else "misread: chains lost"


def study(files: int, seed: int = 0) -> tuple[list[str], Counter[str], dict[str, str]]:
    """Problems, counts, and one refusal of each kind."""
    kinds: list[Callable[[Made], Saved]] = [getattr(Made, k) for k in sorted(vars(Made)) if k.startswith("kind_")]
    problems, counts, refusals = [], Counter[str](), {}
    with tempfile.TemporaryDirectory() as name:
        tasks = Path(name) / "tasks.py"
        tasks.write_text(TASKS)
        for i in range(files):
            folder, kind = Path(name) / str(i), kinds[i % len(kinds)]
            folder.mkdir()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    saved = kind(Made(Random(seed * 10_000 + i), folder))
            except ImportError as error:
                counts[f"left out ({error.name} is not installed)"] += 1
                continue
            answer = ask(saved, tasks)
            verdict, label = judged(saved, *answer), kind.__name__.removeprefix("kind_")
            counts[verdict.split(":", 1)[0]] += 1
            if verdict == "refused":
                refusals[f"{label} ({'' if saved.meant is None else 'readable, '}{saved.paths[0].suffix})"] = answer[
                    1
                ].strip()
            elif verdict != "right":
                problems.append(
                    f"{label} {[p.name for p in saved.paths]} seed {seed * 10_000 + i}: {verdict} | {answer[1][-300:]}"
                )
    return problems, counts, refusals


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", default="", help="folder with ArviZ, xarray, zarr, polars")
    given = parser.parse_args()
    sys.path.append(given.packages)
    found, answers, refused = study(given.files, given.seed)
    print(json.dumps({"answers": answers, "refused": refused}, indent=1))
    print(f"{given.files} files, {len(found)} problems")
    print("\n".join(found))
    raise SystemExit(bool(found))
