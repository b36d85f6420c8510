"""Imports done once in the fork server, so that no worker pays for them."""

import arviz_stats.base
import sklearn.datasets
import torch

from parvibench.core import registry
from parvibench.metrics.transport import pot

torch.set_num_threads(1)
for _name in registry.metrics():
    registry.load_metric(_name)
pot()

__all__ = ["arviz_stats", "sklearn", "torch"]
