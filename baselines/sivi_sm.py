"""Semi-implicit variational inference by score matching (SIVI-SM).

Yu & Zhang (2023), arXiv:2308.10014, Algorithm 1. Samples x = mu(z) + sigma xi as in SIVI. The Fisher divergence between
q and the target, written with an adversary f so that only the conditional's score -xi / sigma is needed, gives

    min over (mu, sigma)  max over f   E [ 2 f(x) . ( s(x) + xi / sigma ) - ||f(x)||^2 ],  f* = s - grad log q

Each iteration: one step of Adam on the sampler at fixed f, through x, xi / sigma, f and s; then some on f with fresh
samples. The sampler's gradients at a batch of M, F = s + xi / sigma:

    dL/dF = 2 f / M,   dL/dx = (grad s) dL/dF + J_f^T 2 (F - f) / M

Trap: s must be differentiated in the sampler's step: M scores and M Hessian-vector products, and M scores per step of
f.

Options, from the code: with ``psi`` the adversary is g = f + psi s, psi falling every 100 iterations; on networks the
sampler is pre-trained on the responses of training rows, then f alone for ``critic_pretraining`` iterations.

Departures: log sigma^2 is cut at its floor after each step, where the code cuts the value it uses; f's pre-training
sees fresh mini-batches, the code's one; the task's initial distribution is not used.
"""

from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Example, Presets, Problem, Streams, code, ours, paper
from parvibench.nn.mlp import MLP
from parvibench.nn.optim import Moments, adam, step_decay
from parvibench.nn.semi_implicit import Noise, SamplerState, SemiImplicit, SemiImplicitSettings

#: Iterations of an epoch of the code, after each of which psi falls.
_EPOCH = 100


class Settings(SemiImplicitSettings):
    """Settings of SIVI-SM."""

    critic_hidden: int = Field(128, ge=1, description="units in each of f's two hidden layers; code's toys")
    critic_learning_rate: float = Field(2e-3, gt=0, description="of f's Adam; code's toys")
    critic_beta2: float = Field(0.99, ge=0, lt=1, description="decay of the gradient's square in f's Adam; code")
    critic_steps: int = Field(1, ge=1, description="steps on f per iteration; code")
    critic_pretraining: int = Field(0, ge=0, description="iterations on f alone, after the network's; code: 100")
    critic_pretraining_rate: float = Field(1e-3, gt=0, description="learning rate of these; code")
    psi: float = Field(0.0, ge=0, le=1, description="share of s in g = f + psi s; code: 1 on regression")
    psi_decay: float = Field(1 / 1.004, gt=0, le=1, description="factor of psi every 100 iterations; code")

    def share(self, t: int) -> float:
        """psi at iteration t."""
        return self.psi * step_decay(max(t, 0), self.psi_decay, _EPOCH)


class State(NamedTuple):
    """The sampler, f's parameters and Adam's memory of f."""

    sampler: SamplerState
    critic: Tensor  # (R, Q)
    moments: Moments


_TOY = (
    paper(iterations=50_000, step_size=1e-3, latent_dim=3, hidden=50, critic_learning_rate=2e-3, critic_steps=1)
    | code(samples=1000, batch=500, critic_hidden=128, log_var_init=0.0, log_var_floor=-6.0)
    | code(beta2=0.99, decay=0.9, decay_every=1000)
)
_LOGISTIC = (
    paper(iterations=20_000, samples=1000, batch=100, step_size=1e-3, latent_dim=10, hidden=100, log_var_init=0.0)
    | paper(critic_learning_rate=2e-3, critic_hidden=256)
    | code(log_var_floor=-6.0, beta2=0.99, decay=0.9, decay_every=3000, psi=1.0, psi_decay=1 / 1.004)
)
#: No code is public: the schedule is KSIVI's.
_DIFFUSION = (
    paper(iterations=100_000, samples=1000, batch=128, step_size=1e-4, latent_dim=100, hidden=128, log_var_init=-2.0)
    | paper(critic_learning_rate=1e-4, critic_hidden=512, critic_steps=1)
    | ours(decay=0.9, decay_every=10_000)
)
_BOSTON = (
    code(iterations=20_199, samples=100, batch=100, step_size=2e-5, log_var_init=-8.0, log_var_floor=-20.0)
    | paper(latent_dim=3, hidden=10, critic_hidden=16)
    | code(beta2=0.999, decay=0.9, decay_every=1000, critic_learning_rate=0.01)
    | code(pretraining=99, pretraining_rate=0.01, pretraining_rows="training")
    | code(critic_pretraining=100, critic_pretraining_rate=1e-3)
)


class SIVISM(SemiImplicit[Settings, State]):
    """Semi-implicit variational inference by score matching."""

    name = "sivi-sm"
    version = 3
    needs = frozenset({"hvp", "score"})
    differentiates = True
    citation = "Yu & Zhang (2023), arXiv:2308.10014"
    example = Example(
        quick={"batch": 8, "hidden": 6, "critic_hidden": 6}, scores=3, steps=200, points=200, both_modes=False,
        settings={
            "step_size": 0.005, "batch": 32, "hidden": 16, "beta2": 0.99, "critic_hidden": 32,
            "critic_learning_rate": 0.01,
        },
    )  # fmt: skip
    # paper: that of KSIVI, arXiv:2405.18997, Appendix C
    presets: ClassVar[Presets] = {
        "banana": _TOY,
        "banana-ksivi-code": _TOY,
        "multimodal": _TOY | code(annealing=25_000),
        "x-shaped": _TOY,
        "blr-waveform": _LOGISTIC,
        "blr-waveform-code": _LOGISTIC | code(critic_learning_rate=3e-3),
        **dict.fromkeys([f"diffusion-{d}" for d in ("50", "100", "200", "100-ksivi-code")], _DIFFUSION),
        "bnn-boston-ksivi": _BOSTON,
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Random networks, constant sigma."""
        net = _critic(problem, settings)
        critic = net.initialise(streams.uniform("init", (net.n_parameters,), index=1))
        sampler = settings.start(problem.dim, streams, settings.critic_pretraining)
        return State(sampler, critic, Moments.start(critic))

    @torch.no_grad()
    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One step on the sampler, then those on f."""
        sampler, critic, moments = state
        delay = settings.critic_pretraining
        if sampler.t < -delay:
            return state._replace(sampler=settings.pretrain(problem, sampler, streams, delay))
        if sampler.t < 0:
            return _pretrain_critic(problem, settings, state, streams)
        temper, psi = settings.temper(sampler), settings.share(sampler.t)
        noise = settings.noise(problem, streams, settings.batch)
        grad = sampler_gradient(problem, settings, sampler.parameters, critic, noise, temper, psi)
        rate = settings.critic_learning_rate * step_decay(sampler.t, settings.decay, settings.decay_every)
        sampler = settings.descend(sampler, grad, problem.dim)

        betas = settings.beta1, settings.critic_beta2
        for j in range(settings.critic_steps):
            noise = settings.noise(problem, streams, settings.batch, j + 1)
            grad = critic_gradient(problem, settings, sampler.parameters, critic, noise, temper, psi)
            critic, moments = adam(critic, grad, moments, rate, betas)
        return State(sampler, critic, moments)


def _pretrain_critic(problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
    """One step of Adam on f with the sampler as it is; after the last one Adam's memory is empty again."""
    sampler, critic, moments = state
    noise = settings.noise(problem, streams, settings.batch, 1)
    grad = critic_gradient(problem, settings, sampler.parameters, critic, noise, 1.0, settings.share(sampler.t))
    betas = settings.beta1, settings.critic_beta2
    critic, moments = adam(critic, grad, moments, settings.critic_pretraining_rate, betas)
    if sampler.t == -1:
        moments = Moments.start(critic)
    return State(sampler._replace(t=sampler.t + 1), critic, moments)


def sampler_gradient(
    problem: Problem, settings: Settings, parameters: Tensor, critic: Tensor, noise: Noise, temper: float, psi: float
) -> Tensor:
    """Gradient of the objective in the sampler's parameters, f fixed: (R, P + D).

    With g = f + psi s in place of f: dL/dF = 2 g / M, dL/dg = 2 (F - g) / M, and s takes part in both. ``critic`` is f's
    parameters, (R, Q); ``temper`` multiplies the target's score.
    """
    made = settings.draw(parameters, *noise)
    with torch.enable_grad():
        leaf = made.x.detach().requires_grad_()
        score = temper * problem.score(leaf)
    net, s, scale = _critic(problem, settings), score.detach(), 2 / made.x.shape[1]
    values = net.forward(critic, made.x)
    g = values[-1] + psi * s if psi else values[-1]
    grad_f, grad_g = scale * g, scale * (s + made.noise - g)
    grad_s = grad_f + psi * grad_g if psi else grad_f
    grad_x = net.backward_input(critic, values, grad_g)
    grad_x += torch.autograd.grad(score, leaf, grad_outputs=grad_s)[0]
    return settings.pull_back(parameters, made, grad_x, grad_noise=grad_f)


def critic_gradient(
    problem: Problem, settings: Settings, parameters: Tensor, critic: Tensor, noise: Noise, temper: float, psi: float
) -> Tensor:
    """Gradient of minus the objective in f's parameters, (R, Q): arguments as of ``sampler_gradient``."""
    net, made = _critic(problem, settings), settings.draw(parameters, *noise)
    values = net.forward(critic, made.x)
    residual = values[-1] - (1 - psi) * temper * problem.score(made.x) - made.noise
    return net.backward(critic, values, residual.mul_(2 / made.x.shape[1]))


def _critic(problem: Problem, settings: Settings) -> MLP:
    return MLP((problem.dim, settings.critic_hidden, settings.critic_hidden, problem.dim), "relu")
