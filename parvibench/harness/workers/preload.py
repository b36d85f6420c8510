"""Imports done once in the fork server, so that no worker pays for them."""

import arviz_stats.base
import sklearn.datasets
import torch

from parvibench.core import registry
from parvibench.metrics.transport import optimal_transport

torch.set_num_threads(1)
optimal_transport()
for _name in registry.metrics():
    registry.load_metric(_name)

__all__ = ["arviz_stats", "sklearn", "torch"]
