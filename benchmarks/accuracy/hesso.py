"""only_train_once's HESSO in the harness; runs in that package's own environment.

It takes a share of groups, not of FLOPs. So the share is searched for: a try ends when the pruning is over and the FLOPs are known, and
begins anew with another share until they are within 1 % of what was asked for. Only the try that fits is trained to the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from benchmarks.accuracy.contender import Batch, Contender
from benchmarks.accuracy.share_search import Try, groups_to_keep
from benchmarks.flops import count_image_macs
from benchmarks.hesso import END, Hesso, cut_copy

WITHIN = 0.01
MOST_TRIES = 8


class WrongShare(Exception):
    """The FLOPs after the pruning are not those that were asked for; carries them."""

    def __init__(self, found: float) -> None:
        super().__init__(f"{found:.4f} of the FLOPs are left")
        self.found = found


class HessoContender(Contender):
    """HESSO with the common recipe."""

    memory_format = torch.contiguous_format
    can_resume = False
    PRUNED_AT = END
    tries: ClassVar[list[Try]] = []
    # On the class: the harness makes a new contender for the next try.

    def prepare(self) -> None:
        """Begin, or begin again, with the share of groups to try."""
        self._groups_left = groups_to_keep(self.configuration.keep_flops, self.tries)
        self._dense_macs = count_image_macs(self.model, self.example[:1])
        self._hesso = Hesso(
            self.model, self.example[:1], self.recipe, self.total_steps, group_sparsity=1 - self._groups_left, end=self.PRUNED_AT
        )
        self.optimizer = self._hesso.optimizer

    def step(self, number: int, batch: Batch, draw_held: Callable[[], Batch]) -> float:
        """A step; the first after the pruning looks at the FLOPs."""
        if number == round(self.PRUNED_AT * self.total_steps) + 2 and len(self.tries) < MOST_TRIES:
            found = self._share_now()
            if abs(found / self.configuration.keep_flops - 1) > WITHIN:
                self.tries.append((self._groups_left, found))
                raise WrongShare(found)
        return super().step(number, batch, draw_held)

    def finish(self) -> nn.Module:
        """Cut in place."""
        return self._hesso.finish()

    def facts(self) -> dict[str, Any]:
        """What was searched for."""
        return {"group_sparsity": 1 - self._groups_left, "tries": len(self.tries) + 1}

    def _share_now(self) -> float:
        """The FLOPs if the model were cut now, on a copy."""
        return count_image_macs(cut_copy(self.model, self.example[:1]), self.example[:1]) / self._dense_macs


class PrunedSlowly(HessoContender):
    """Pruned until half-time, where the paper's search ends."""

    PRUNED_AT = 0.5
