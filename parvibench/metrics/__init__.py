"""Metrics, one family a file, and the noise floors that calibrate them.

All take samples, (R, n, D) float64 with n >= 2, in units of x, and a context that holds what the metric declares to need.

The examples in the docstrings share four corners of a square as the reference, and the same points moved by (1, 1) as
the samples of one replicate:

>>> from dataclasses import replace
>>> import torch
>>> from parvibench.core.metric import Context, Cost, Decisions
>>> from parvibench.core.reference import Certified, Reference
>>> from parvibench.core.registry import load_task
>>> banana = load_task("banana")
>>> square = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
>>> context = Context(banana, Reference(square, True, {"bandwidth": 1.0}), banana.target([0], "cpu", torch.float64))
>>> x = square[None] + 1
>>> path = torch.sin(torch.arange(400.0)).reshape(1, 100, 4, 1)  # 4 chains of 100 positions in one dimension
>>> chains = Context(banana, path=path, cost=Cost(100, 400.0, 0.5, 128.0))
>>> gmm, ica, bnn = (load_task(name) for name in ("gmm5-2d", "ica-synthetic", "bnn-diabetes-sklearn"))
>>> held_out = Context(bnn, predictive=bnn.predictive([0], "cpu", torch.float64))
>>> weights = torch.zeros(1, 2, bnn.dim, dtype=torch.float64)
>>> one, row = torch.ones(1, 1), torch.zeros(1, 44)
>>> known = Certified(row + 150, row + 10, row[None], 70 * one, row - 6)
>>> certified = Context(bnn, predictive=replace(held_out.predictive, certified=known))
>>> decided = Decisions(reward=torch.zeros(1, 3), best=torch.ones(1, 3), uniform=torch.full((1, 3), 0.5))
>>> bandit = Context(banana, decisions=decided)
"""
