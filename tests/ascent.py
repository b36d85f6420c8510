"""A plain sampler for tests to spoil."""

from parvibench.core.algorithm import Algorithm, ParticleState, SteppedSettings


class Ascent(Algorithm):
    """Gradient ascent."""

    name = "ascent"
    kind = "particles"
    settings_type = SteppedSettings

    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)

    def step(self, problem, settings, state, streams):
        return ParticleState(state.x + settings.step_size * problem.score(state.x))
