"""The common recipe with another optimizer."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.recipe import Recipe


class AdamWRecipe(Recipe):
    """The common warm-up and cosine with AdamW."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            model.parameters(), lr=self.peak_learning_rate, weight_decay=self.weight_decay
        )


ADAMW = AdamWRecipe(peak_learning_rate=3e-3, weight_decay=1e-2)
