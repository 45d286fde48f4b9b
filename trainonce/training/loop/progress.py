"""How a run advances between two epochs: mean loss, seconds of training, steps per second."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SMOOTHING = 0.95


@dataclass(slots=True)
class Progress:
    """Counted step by step; `seconds` includes the time before an interruption."""

    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_count: int = 0
    steps_per_second: float = 0.0
    _last_step: float = field(default_factory=time.monotonic)

    @property
    def mean_loss(self) -> float | None:
        """Of the epoch so far; None if every step was skipped."""
        return self.loss_sum / self.loss_count if self.loss_count else None

    def note_step(self, loss: float | None) -> None:
        """Count a step; None for one that was skipped."""
        now = time.monotonic()
        passed, self._last_step = now - self._last_step, now
        self.seconds += passed
        rate = 1 / max(passed, 1e-6)
        known = self.steps_per_second
        self.steps_per_second = SMOOTHING * known + (1 - SMOOTHING) * rate if known else rate
        if loss is not None:
            self.loss_sum += loss
            self.loss_count += 1

    def start_epoch(self) -> None:
        """Forget the losses of the last epoch."""
        self.loss_sum, self.loss_count = 0.0, 0

    def start_clock(self) -> None:
        """Let the next step's time begin now: validation and saving don't count."""
        self._last_step = time.monotonic()
