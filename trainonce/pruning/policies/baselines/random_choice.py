"""The random baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from trainonce.pruning.policies.policy import Policy


class RandomChoice(Policy):
    """Keeps random units: the baseline every criterion has to beat."""

    def scores(self) -> Tensor:
        """Noise from the run's seed, the same on each call."""
        return torch.rand(len(self.search.units), generator=torch.Generator().manual_seed(self.search.seed))
