"""Files as a user would write them."""

from pathlib import Path

RING = """
import torch
import parvibench as pb

ring = pb.task(lambda x: -8 * (x.norm() - 2) ** 2, dim=2, initial=[2.0, 0.0], name="ring")


def draw(n, generator):
    return 3 + 2 * torch.randn(n, 2, generator=generator, dtype=torch.float64)


def normal(x):
    return -0.5 * ((x - 3) / 2).square().sum()


wide = pb.task(normal, dim=2, exact=draw, name="wide", coordinates=["a", "b"])
function = normal
"""

PYRO = """
import torch, pyro, pyro.distributions as dist
import parvibench as pb

y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
sigma = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(y, sigma):
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", 8):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu + tau * z, sigma), obs=y)


schools = pb.from_pyro(eight_schools, y, sigma)

g = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=g)
group = torch.randint(0, 4, (60,), generator=g)
counts = torch.poisson(torch.exp(0.3 * X[:, 0] + 0.2), generator=g)


def glm(X, group, counts):
    L = pyro.sample("L", dist.LKJCholesky(3, 2.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5).expand([3]).to_event(1))
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(4)))
    with pyro.plate("coefficients", 2):
        beta = pyro.sample("beta", dist.MultivariateNormal(torch.zeros(3), scale_tril=scale[:, None] * L))
    with pyro.plate("rows", len(X)):
        rate = X @ beta[0] + 0.1 * X @ beta[1] + torch.log(4 * weights[group])
        pyro.sample("counts", dist.Poisson(rate.exp()), obs=counts)


counted = pb.from_pyro(glm, X, group, counts, name="glm")
"""


def write(folder: Path, name: str, text: str) -> Path:
    """The file in the folder."""
    path = folder / name
    path.write_text(text)
    return path
