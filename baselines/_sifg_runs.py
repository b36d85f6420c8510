"""Common settings of the presets for the SIFG paper's experiments.

Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5 and Appendix E, and the authors' code. Where a value is
tuned, the preset holds the one that the code is committed with.
"""

from parvibench.core.algorithm import Presets, Sourced, code, paper

#: The mixtures and Monomial Gamma.
TOY_POINTS = paper(particles=1000, samples=1000)
#: ICA and the networks; ICA was run with 10 particles too.
POINTS = paper(iterations=2000, particles=100, samples=100)

#: Methods that refit a network, on toys.
TOY = (
    TOY_POINTS
    | paper(hidden=32, activation="tanh", inner_steps=5, particle_rule="plain")
    | paper(net_optimiser="sgd-nesterov", net_learning_rate=1e-3)
    | code(warmup_inner_steps=10)
)
#: The same on ICA, whose script has no momentum; steps of 3e-4, 1e-3 and 3e-3 were tried.
ICA = (
    POINTS
    | paper(hidden=120, activation="tanh", inner_steps=20, net_learning_rate=1e-3, particle_rule="plain")
    | code(warmup_inner_steps=0, net_optimiser="sgd", step_size=1e-3)
)
#: The same on networks; steps of 1e-4, 2e-4, 5e-4 and 1e-3 and learning rates of 1e-3 and 1e-4 were tried.
NETWORK = (
    POINTS
    | paper(hidden=300, activation="leaky-relu", inner_steps=10, net_optimiser="adam")
    | code(warmup_inner_steps=0, net_learning_rate=1e-4, net_decay=0.9, particle_rule="rms", step_size=5e-4)
)


def on_networks(preset: dict[str, Sourced]) -> Presets:
    """One preset for each set of Table 1: the scripts run all of them alike."""
    names = ("boston", "concrete", "diabetes", "power", "protein", "wine-binary")
    return {f"bnn-{name}-sifg": preset for name in names}
