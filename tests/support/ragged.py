"""The operators that pull ragged groups, on a plain matrix of one group per row."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.pruning.pulling.proximal import Ragged, half_space, shrink_groups, shrink_groups_in_metric


def ragged(matrix_GD: Tensor) -> Ragged:
    return Ragged([matrix_GD], [torch.arange(len(matrix_GD))], len(matrix_GD))


def shrunk(groups_GD: Tensor, strength: float) -> Tensor:
    return shrink_groups(ragged(groups_GD), [strength]).rows[0]


def shrunk_in_metric(groups_GD: Tensor, metric_GD: Tensor, strength: float) -> Tensor:
    return shrink_groups_in_metric(ragged(groups_GD), [metric_GD], [strength]).rows[0]


def half_spaced(trial_GD: Tensor, before_GD: Tensor, epsilon: float) -> Tensor:
    return half_space(ragged(trial_GD), ragged(before_GD), epsilon).rows[0]
