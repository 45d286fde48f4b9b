"""Which units are pulled in each phase, and how hard: gently during the search, firmly once decided."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainonce.pruning.pulling.projection import Projection, Pull
from trainonce.pruning.schedule import Strength, Timetable
from trainonce.pruning.units import Units


class Pulling:
    """Pulls units of one model after each optimizer step, by the timetable of one run."""

    def __init__(
        self,
        units: Units,
        tensors: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        *,
        pull: Pull,
        strength: Strength,
        timetable: Timetable,
    ) -> None:
        self._tensors = tensors
        self._optimizer = optimizer
        self._pull = pull
        self._strength = strength
        self._timetable = timetable
        self._decided_at: int | None = None
        self.floor: Tensor | None = None
        """For each unit, the norm at which the gentle pull stops; None if it doesn't."""
        self._place(units)

    @property
    def gently(self) -> Tensor | None:
        """The units that are pulled gently, because they may still stay."""
        return self._gentle.pulled_units

    def pull_gently(self, chosen: Tensor) -> None:
        """Set which units are pulled gently from now on: one boolean each."""
        self._gentle.select(chosen)
        self.floor = self._gentle.mean_norms() * self._strength.floor if self._strength.floor else None

    def resume(self, chosen: Tensor | None, floor: Tensor | None) -> None:
        """Restore `gently` and `floor`."""
        self._gentle = Projection(self._units, self._tensors, self._optimizer)
        if chosen is not None:
            self._gentle.select(chosen)
        self.floor = floor

    def follow(self, units: Units, decision: Tensor, *, decided_at: int | None) -> None:
        """Pull firmly, from now on, what the decision drops; `units` are at their current positions."""
        gently = self.gently
        self._place(units)
        if gently is not None:
            self._gentle.select(gently & (decision != 0))
        self._firm.select(decision == 0)
        self._decided_at = decided_at

    def zero(self) -> None:
        """Zero what was decided to go, now."""
        self._firm.apply(self._pull, self._strength.settled, largest_scale=0.0)

    def has_arrived(self) -> bool:
        """Whether everything that was decided to go is exactly zero."""
        return self._decided_at is not None and self._firm.all_zero()

    def before_step(self, step: int) -> None:
        """Before the optimizer's step: note what the pull compares with."""
        if self._pull.needs_before and step >= self._timetable.shrink_from:
            self._gentle.remember()
            self._firm.remember()

    def after_step(self, step: int, *, is_open: bool, held: Tensor | None = None) -> None:
        """After the optimizer's step: pull, gently only while the decision `is_open`, and no `held` units."""
        if step < self._timetable.shrink_from:
            return
        if is_open:
            self._gentle.apply(self._pull, self._strength.searching, floor=self.floor, held=held)
        if self._decided_at is not None:
            scale = self._strength.largest_scale(self._timetable, step, decided_at=self._decided_at)
            self._firm.apply(self._pull, self._strength.settled, largest_scale=scale, held=held)

    def is_overdue(self, step: int) -> bool:
        """Whether everything that was decided to go should have been zero before this step."""
        return self._decided_at is not None and not self._strength.largest_scale(
            self._timetable, step - 1, decided_at=self._decided_at
        )

    def _place(self, units: Units) -> None:
        self._units = units
        self._gentle, self._firm = (Projection(units, self._tensors, self._optimizer) for _ in range(2))
