"""What the way of writing KSIVI costs: ``python tests/studies/papers --times``, on an idle machine.

The paper's times (Tables 2 and 7) are of programs that form every pair of samples coordinate by coordinate, (n, n, D)
numbers, and differentiate automatically, as its published program does; ours take matrix products and gradients written
out. Here the four methods of these tables are written in that way, on our targets, with the sizes of our presets, and
timed in turn, so that a ratio of two is of one round. Writes what each published ratio becomes into
``reports/papers/causes.csv``, which the audit reads.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from parvibench.core.registry import load_method, load_task

from .replicates import Ours

#: File of what a change that no row of a suite can make turns our numbers into.
CAUSES = "causes.csv"
REASON = "pairs coordinate by coordinate and automatic gradients, as the paper's program has them, in place of matrix products"
TASKS = {"d=50": "diffusion-50", "d=100": "diffusion-100-ksivi-code", "d=200": "diffusion-200"}
#: Row of a table -> method timed; both tables have it over KSIVI.
ROWS = {
    "ksivi/table-2/{}/SIVI/train_seconds_per_10k_iters": "sivi",
    "ksivi/table-2/{}/SIVI-SM/train_seconds_per_10k_iters": "sivi-sm",
    "ksivi/table-7/{}/KSIVI-ustat/train_seconds_per_10k_iters": "ksivi-ustat",
}


class Program:
    """The semi-implicit distribution of a preset, and Adam."""

    def __init__(self, name: str, task: str) -> None:
        method = load_method(name)
        self.problem = load_task(task).problem(1, 0)
        self.settings: Any = method.make_settings(method.expand_preset({"preset": task}))
        self.dim, hidden = self.problem.dim, self.settings.hidden
        self.network = layers(self.settings.latent_dim, hidden, self.dim)
        self.log_var = nn.Parameter(torch.full((self.dim,), self.settings.log_var_init))
        self.adam = torch.optim.Adam([*self.network.parameters(), self.log_var], lr=self.settings.step_size)
        self.critic = layers(self.dim, getattr(self.settings, "critic_hidden", 1), self.dim)
        self.critic_adam = torch.optim.Adam(self.critic.parameters(), lr=1e-4)

    def draw(self) -> tuple[Tensor, Tensor]:
        """Samples of a batch (n, D) and xi / sigma."""
        mean = self.network(torch.randn(self.settings.batch, self.settings.latent_dim))
        sigma, xi = (self.log_var / 2).exp(), torch.randn(len(mean), self.dim)
        return mean + sigma * xi, xi / sigma

    def score(self, x: Tensor) -> Tensor:
        """Of the target, differentiable."""
        return self.problem.score(x[None])[0]


def layers(n_in: int, hidden: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_out)
    )


def descend(adam: torch.optim.Adam, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    adam.step()


def ksivi(program: Program) -> None:
    """Two batches; the Gaussian kernel with its median."""
    (x, noise), (y, more) = program.draw(), program.draw()
    products = ((program.score(x) + noise)[:, None] * (program.score(y) + more)[None]).sum(-1)
    descend(program.adam, (products * gaussian_kernel(x, y)).mean())


def u_statistic(program: Program) -> None:
    """One batch with itself."""
    x, noise = program.draw()
    f = program.score(x) + noise
    products = (f[:, None] * f[None]).sum(-1) * gaussian_kernel(x, x)
    descend(program.adam, (products.sum() - products.diagonal().sum()) / (len(x) * (len(x) - 1)))


def gaussian_kernel(x: Tensor, y: Tensor) -> Tensor:
    squared = (x[:, None] - y[None]).square().sum(-1)
    return torch.exp(-squared / (squared.median() / torch.log(torch.tensor(len(x) + 1.0))))


def sivi(program: Program) -> None:
    """The surrogate with its further draws of the mixing variable; the target enters by its score."""
    settings = program.settings
    z = torch.randn(settings.batch + settings.mixing, settings.latent_dim)
    means, var = program.network(z), program.log_var.exp()
    own, further = means[: settings.batch], means[settings.batch :]
    x = own + var.sqrt() * torch.randn_like(own)
    logs = -0.5 * ((x[:, None] - further[None]).square() / var + program.log_var).sum(-1)
    own_log = -0.5 * ((x - own).square() / var + program.log_var).sum(-1, keepdim=True)
    log_h = torch.cat((own_log, logs), 1).logsumexp(1)
    with torch.no_grad():
        score = program.score(x)
    descend(program.adam, (log_h - (score * x).sum(-1)).mean())


def score_matching(program: Program) -> None:
    """A step on the sampler, then one on the network f against it."""
    x, noise = program.draw()
    f = program.critic(x)
    descend(program.adam, (f * (2 * program.score(x) + 2 * noise - f)).sum(-1).mean())
    with torch.no_grad():
        x, noise = program.draw()
        score = program.score(x)
    f = program.critic(x)
    descend(program.critic_adam, -(f * (2 * score + 2 * noise - f)).sum(-1).mean())


METHODS = {"ksivi": ksivi, "ksivi-ustat": u_statistic, "sivi": sivi, "sivi-sm": score_matching}


def times(task: str, rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds of so many steps of every method, round by round, after one that does not count."""
    programs = {name: Program(name, task) for name in METHODS}
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(rounds + 1):
        for name, program in programs.items():
            began = time.perf_counter()
            for _ in range(steps):
                METHODS[name](program)
            found[name].append(time.perf_counter() - began)
    return {name: values[1:] for name, values in found.items()}


def causes(tasks: Mapping[str, str], rounds: int, steps: int) -> pd.DataFrame:
    """A line a published ratio."""
    lines = []
    for label, task in tasks.items():
        found = times(task, rounds, steps)
        for pattern, name in ROWS.items():
            ours = Ours.of([a / b for a, b in zip(found[name], found["ksivi"], strict=True)])
            pointer = pattern.format(label)
            lines.append((pointer, ours.mean, ours.low, ours.high, ours.n, REASON))
            print(f"{pointer}: {ours.mean:.3g} [{ours.low:.3g}, {ours.high:.3g}]", flush=True)
        each = ", ".join(f"{name} {1e3 * min(values) / steps:.2f}" for name, values in found.items())
        print(f"{task}: milliseconds a step: {each}", flush=True)
    return pd.DataFrame(lines, columns=["pointer", "mean", "low", "high", "n", "note"])


def measure(path: Path, rounds: int = 5, steps: int = 200) -> None:
    """Time and write."""
    torch.set_num_threads(1)
    causes(TASKS, rounds, steps).to_csv(path, index=False)
