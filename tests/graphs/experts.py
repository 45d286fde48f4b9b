"""Experts whose weights are stacked: routed by top-k, multiplied by group, in batches or one after another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.graphs.registry import graph
