"""Stan programs of `stan/`, their data, and the same densities in PyTorch or closed form, written by hand."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributions
from torch.distributions.transforms import CorrCholeskyTransform

PROGRAMS = Path(__file__).parent / "stan"
RNG = np.random.default_rng(45)
Density = Callable[[dict[str, Any], Tensor], Tensor]


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def positive(x: Tensor) -> tuple[Tensor, Tensor]:
    """exp and the logarithm of its slope."""
    return x.exp(), x.sum()


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of logit and the logarithm of its slope."""
    p = torch.sigmoid(x)
    return p, (p * (1 - p)).log().sum()


def ordered(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first as it is, then positive differences."""
    return torch.cat([x[:1], x[:1] + x[1:].exp().cumsum(0)]), x[1:].sum()


def line(d: dict[str, Any], x: Tensor) -> Tensor:
    a, b, (sigma, jacobian) = x[0], x[1], positive(x[2])
    residual = (tensor(d["y"]) - a - b * tensor(d["x"])) / sigma
    prior = -a.square() / 8 - 2.5 * (1 + b.square() / 4).log() - 0.7 * sigma
    return prior + jacobian - d["n"] * sigma.log() - residual.square().sum() / 2


def rates(d: dict[str, Any], x: Tensor) -> Tensor:
    mean, j0 = unit(x[0])
    log_size, j1 = 9 - x[1].exp(), x[1]
    rate, j2 = unit(x[2:])
    a, b = mean * log_size.exp(), (1 - mean) * log_size.exp()
    hits, trials = tensor(d["hits"]), tensor(d["trials"])
    beta = distributions.Beta(a, b).log_prob(rate).sum()
    likelihood = (hits * rate.log() + (trials - hits) * (1 - rate).log()).sum()
    return beta + likelihood - (log_size - 2).square() / 2 + j0 + j1 + j2


def grades(d: dict[str, Any], x: Tensor) -> Tensor:
    cut, jacobian = ordered(x[1:])
    ends = torch.cat([tensor([-math.inf]), cut, tensor([math.inf])])
    above = torch.sigmoid(x[0] * tensor(d["x"])[:, None] - ends)  # P(grade > k)
    k = torch.tensor(d["grade"])
    chosen = above.gather(1, k[:, None] - 1) - above.gather(1, k[:, None])
    return chosen.log().sum() - x[0].square() / 2 - cut.square().sum() / 8 + jacobian


def shares(d: dict[str, Any], x: Tensor) -> Tensor:
    """Stan's simplex since 2.37, isometric log ratios: softmax of coordinates along Helmert's contrasts."""
    K, i = d["K"], torch.arange(1, d["K"], dtype=torch.float64)
    contrasts = torch.tril(torch.ones(K, K, dtype=torch.float64)).T[:, : K - 1] - torch.diag(i, -1)[:, : K - 1]
    z = contrasts / (i * (i + 1)).sqrt() @ x
    power = tensor(d["alpha"]) - 1 + tensor(d["counts"])
    return (power * z.log_softmax(0)).sum() - K * z.logsumexp(0)


def correlated(d: dict[str, Any], x: Tensor) -> Tensor:
    k = d["d"]
    transform = CorrCholeskyTransform()
    mu, (scale, j0), free = x[:k], positive(x[k : 2 * k]), x[2 * k :]
    factor = transform(free)
    likelihood = distributions.MultivariateNormal(mu, scale_tril=scale[:, None] * factor).log_prob(tensor(d["y"])).sum()
    lkj = distributions.LKJCholesky(k, 3.0, validate_args=False).log_prob(factor)
    prior = -mu.square().sum() / 8 + distributions.LogNormal(0.0, 1.0).log_prob(scale).sum()
    return likelihood + prior + lkj + j0 + transform.log_abs_det_jacobian(free, factor)


def growth(d: dict[str, Any], x: Tensor) -> Tensor:
    """The logistic equation has a solution in closed form."""
    (start, r, capacity, sigma), jacobian = positive(x)
    t, y = tensor(d["t"]), tensor(d["y"])
    z = capacity / (1 + (capacity / start - 1) * (-r * t).exp())
    normal = distributions.Normal
    prior = normal(0.0, 1.0).log_prob(x[0]) + normal(-1.0, 1.0).log_prob(x[1]) + normal(2.0, 1.0).log_prob(x[2])
    return prior - x[:3].sum() - sigma + normal(z.log(), sigma).log_prob(y.log()).sum() + jacobian


def covariance(d: dict[str, Any], x: Tensor) -> Tensor:
    """Stan's factor: rows of the lower triangle, the logarithm on the diagonal; dS/dL gives 2^d prod L_ii^(d - i + 1)."""
    k = d["d"]
    rows, columns = np.tril_indices(k)
    diagonal = torch.tensor(rows == columns)
    factor = torch.zeros(k, k, dtype=torch.float64).index_put(
        (torch.tensor(rows), torch.tensor(columns)), torch.where(diagonal, x.exp(), x)
    )
    S = factor @ factor.T
    logs = factor.diagonal().log()
    jacobian = (logs * torch.arange(k + 1, 1, -1)).sum()  # k - i + 1 of S, one of the exponential, i from 1
    trace = torch.linalg.solve(S, tensor(d["scatter"]) + torch.eye(k, dtype=torch.float64)).trace()
    return -logs.sum() * (2 * k + 3 + d["n"]) - trace / 2 + jacobian


def mixture(d: dict[str, Any], x: Tensor) -> Tensor:
    mu, j0 = x[:2].exp().cumsum(0), x[:2].sum()
    (sigma, j1), (weight, j2) = positive(x[2:4]), unit(x[4])
    y = tensor(d["y"])[:, None]
    parts = distributions.Normal(mu, sigma).log_prob(y) + torch.stack([weight.log(), (1 - weight).log()])
    prior = (mu.log() - mu / 2).sum() - (4 * sigma.log() + 2 / sigma).sum() + (weight * (1 - weight)).log()
    return torch.logsumexp(parts, 1).sum() + prior + j0 + j1 + j2


def groups(d: dict[str, Any], x: Tensor) -> Tensor:
    J = d["J"]
    mu, (tau, j0), raw = x[0], positive(x[1]), x[2 : 2 + J]
    w = x[2 + J :].reshape(J, 2).T  # by columns
    rate = (mu + tau * raw) + w[0] - w[1] / 2
    eta = rate[torch.tensor(d["group"]) - 1]
    likelihood = (tensor(d["y"]) * eta - eta.exp()).sum()
    return likelihood - mu.square() / 2 - (1 + tau.square()).log() - raw.square().sum() / 2 - w.square().sum() / 2 + j0


def direction(d: dict[str, Any], x: Tensor) -> Tensor:
    axis = x[:3] / x[:3].norm()
    p, j0 = unit(x[3])
    phi = 2 * p - 1
    above, j1 = phi + x[4].exp(), x[4]
    pull = d["kappa"] * above * (tensor(d["u"]) @ axis).sum() / (1 + phi.square())
    return pull - 2 * phi.square() - (above - 1).square() / 2 - x[:3].square().sum() / 2 + j0 + j1


def _numbers(values: Any) -> Any:
    return np.round(values, 3).tolist()


_n, _t = 20, np.linspace(0.5, 9, 9)
DATA: dict[str, dict[str, Any]] = {
    "line": {"n": _n, "x": _numbers(RNG.normal(size=_n)), "y": _numbers(RNG.normal(1, 0.5, size=_n))},
    "rates": {"n": 4, "trials": [10, 25, 7, 40], "hits": [3, 11, 5, 9]},
    "grades": {"n": _n, "K": 4, "x": _numbers(RNG.normal(size=_n)), "grade": [1, 2, 3, 4, 2] * 4},
    "shares": {"K": 4, "counts": [12, 3, 30, 8], "alpha": [1.5, 2.0, 1.0, 0.8]},
    "correlated": {"n": _n, "d": 3, "y": _numbers(RNG.normal(size=(_n, 3)) @ np.tril(np.ones((3, 3))))},
    "growth": {
        "n": 9,
        "t": _numbers(_t),
        "y": _numbers(8 / (1 + 7 * np.exp(-0.8 * _t)) * np.exp(RNG.normal(0, 0.1, 9))),
    },
    "covariance": {"d": 3, "n": 12, "scatter": [[9.0, 2.0, 1.0], [2.0, 7.0, -1.0], [1.0, -1.0, 11.0]]},
    "mixture": {"n": _n, "y": _numbers(np.abs(np.concatenate([RNG.normal(2, 0.5, 8), RNG.normal(6, 1, 12)])))},
    "groups": {"n": 15, "J": 5, "group": [1, 2, 3, 4, 5] * 3, "y": [2, 0, 5, 1, 3, 1, 0, 4, 2, 2, 3, 1, 6, 0, 1]},
    "direction": {"n": 4, "u": [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8], [0.8, 0.0, 0.6]], "kappa": 1.5},
}
TWINS: dict[str, Density] = {
    f.__name__: f for f in (line, rates, grades, shares, correlated, growth, covariance, mixture, groups, direction)
}


class Entry(NamedTuple):
    """A posterior for a folder in posteriordb's layout."""

    code: str  #: the program
    data: dict[str, Any] = {}
    draws: list[dict[str, Any]] | None = None  #: chains


def write_posteriordb(folder: Path, names: list[str], more: dict[str, Entry] | None = None) -> Path:
    """A folder in posteriordb's layout with these programs, `broken`, which has an error, and `more`, by DATA-MODEL."""
    root = folder / "posterior_database"
    entries = {f"{n}-{n}": Entry((PROGRAMS / f"{n}.stan").read_text(), DATA[n]) for n in names}
    entries |= {"broken-broken": Entry("parameters {\n  real mu\n}\n")} | (more or {})
    for name, entry in entries.items():
        data, _, model = name.partition("-")
        drawn = {} if entry.draws is None else {"reference_posterior_name": name}
        files = {
            f"posteriors/{name}.json": {"name": name, "model_name": model, "data_name": data} | drawn,
            f"models/info/{model}.info.json": {
                "model_implementations": {"stan": {"model_code": f"models/stan/{model}.stan"}}
            },
            f"data/info/{data}.info.json": {"data_file": f"data/data/{data}.json"},
            f"data/data/{data}.json": entry.data,
            f"reference_posteriors/draws/draws/{name}.json": entry.draws,
        }
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(json.dumps(content))
        (root / "models/stan").mkdir(exist_ok=True)
        (root / f"models/stan/{model}.stan").write_text(entry.code)
    return folder
