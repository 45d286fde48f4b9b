"""Optimizers and policies that whole runs are tested with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trainonce.pruning import policies
from trainonce.pruning.policies import Policy


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=2e-3, weight_decay=1e-2)


OPTIMIZERS = {"sgd": sgd, "adamw": adamw}

POLICIES: dict[str, Callable[[], Policy]] = {
    "anchored": policies.AnchoredController,
    "controller": policies.Controller,
    "free_logits": lambda: policies.Controller(policies.FreeLogits),
    "filter_norm": policies.FilterNorm,
    "norm_scale": policies.NormScale,
    "geometric_median": policies.GeometricMedian,
    "taylor": policies.Taylor,
    "random": policies.RandomChoice,
    "uniform": policies.Uniform,
    "oto": policies.PenalizeAll,
    "static": policies.StaticSalience,
    "gradual": policies.Gradual,
    "soft_filter": policies.SoftFilter,
    "feature_rank": policies.FeatureRank,
    "discrete_gates": policies.DiscreteGates,
}
