"""Imports done once in the fork server, so that no worker pays for them."""

import arviz_stats.base
import ot
import sklearn.datasets
import torch

torch.set_num_threads(1)

__all__ = ["arviz_stats", "ot", "sklearn", "torch"]
