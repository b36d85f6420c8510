"""Cost of the samples, as metrics."""

from torch import Tensor

from parvibench.core.metric import Context, Cost, NotApplicable, metric


@metric("lower", "s", "cost", "steady compute time per replicate")
def seconds(samples: Tensor, context: Context) -> Tensor:
    """Steady compute time of one replicate, (R,) in seconds; lower is better.

    Excludes metrics, compilation and warm-up; the replicates of a chunk share its time evenly.

    >>> seconds(x, chains)
    tensor([0.5000], dtype=torch.float64)
    """
    return samples.new_full((len(samples),), recorded_cost(context).seconds)


@metric("lower", "rows", "cost", "score evaluations charged per replicate")
def score_evaluations(samples: Tensor, context: Context) -> Tensor:
    """Score evaluations charged to one replicate, (R,) in rows; lower is better.

    >>> score_evaluations(x, chains)
    tensor([400.], dtype=torch.float64)
    """
    return samples.new_full((len(samples),), recorded_cost(context).score_evaluations)


@metric("lower", "MiB", "cost", "most memory held: the process's, or on a GPU PyTorch's", when="last")
def peak_memory(samples: Tensor, context: Context) -> Tensor:
    """Most memory held so far, (R,) in MiB, the same for all replicates of a chunk; lower is better.

    On a GPU what PyTorch had allocated there since the chunk began; otherwise the resident memory of the
    process since its start, libraries and metrics included: compare it with the anchors'.

    >>> peak_memory(x, chains)
    tensor([128.], dtype=torch.float64)
    """
    peak = recorded_cost(context).peak_memory
    if peak is None:
        raise NotApplicable("no peak memory was recorded")
    return samples.new_full((len(samples),), peak)


def recorded_cost(context: Context) -> Cost:
    """The cost of the samples.

    Raises:
        NotApplicable: none was recorded.
    """
    if context.cost is None:
        raise NotApplicable("no cost was recorded")
    return context.cost
