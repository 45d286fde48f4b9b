"""only_train_once's HESSO in the harness; runs in that package's own environment.

It takes a share of groups, not of FLOPs. So their number is searched for: a try ends when the pruning is over
and the FLOPs are known, and begins anew with another number until they are within 1 % of what was asked for.
Only that is trained to the end; where one group more or less jumps over the goal, the side with more FLOPs
is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from benchmarks.harness.flops import count_image_macs
from benchmarks.peers.group_search import Try, first_share, next_number, not_below
from benchmarks.peers.hesso import END, Hesso, cut_copy
from benchmarks.training.contender import Batch, Contender

WITHIN = 0.01


class WrongShare(Exception):
    """The FLOPs after the pruning are not those that were asked for."""


class HessoContender(Contender):
    """HESSO with the common recipe."""

    memory_format = torch.contiguous_format
    can_resume = False
    PRUNED_AT = END
    tries: ClassVar[list[Try]] = []
    # On the class: the harness makes a new contender for the next try.

    def prepare(self) -> None:
        """Begin, or begin again, with the number of groups to try."""
        self._dense_macs = count_image_macs(self.model, self.example[:1])
        self._hesso = Hesso(
            self.model,
            self.example[:1],
            self.recipe,
            self.total_steps,
            choose_num_kept=self._num_to_keep,
            end=self.PRUNED_AT,
        )
        self.optimizer = self._hesso.optimizer

    def _num_to_keep(self, num_groups: int) -> int:
        wanted = self.configuration.keep_flops
        number = (
            next_number(wanted, self.tries, num_groups)
            if self.tries
            else round(num_groups * first_share(wanted))
        )
        self._is_searching = number is not None
        return not_below(wanted, self.tries).num_kept if number is None else number

    def step(self, number: int, batch: Batch, draw_held: Callable[[], Batch]) -> float:
        """A step; the first after the pruning looks at the FLOPs."""
        if number == round(self.PRUNED_AT * self.total_steps) + 2 and self._is_searching:
            found = self._share_now()
            if abs(found / self.configuration.keep_flops - 1) > WITHIN:
                self.tries.append(Try(self._hesso.num_kept, found))
                raise WrongShare(
                    f"{self._hesso.num_kept} of {self._hesso.num_groups} groups leave {found:.4f} of the "
                    "FLOPs"
                )
        return super().step(number, batch, draw_held)

    def finish(self) -> nn.Module:
        """Cut in place."""
        return self._hesso.finish()

    def facts(self) -> dict[str, Any]:
        """What was searched for."""
        return {
            "num_groups_kept": self._hesso.num_kept,
            "num_groups": self._hesso.num_groups,
            "tries": len(self.tries) + 1,
        }

    def _share_now(self) -> float:
        """The FLOPs if the model were cut now, on a copy."""
        return count_image_macs(cut_copy(self.model, self.example[:1]), self.example[:1]) / self._dense_macs


class PrunedSlowly(HessoContender):
    """Pruned until half-time, where the paper's search ends."""

    PRUNED_AT = 0.5
