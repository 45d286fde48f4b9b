"""Scalars for TensorBoard: takes the record of each epoch, writes the numbers in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainonce.training.limits import BadSetting

NAMES = ("loss", "validation_loss", "top1", "top5", "lr", "keep_flops", "keep_params", "controller_loss")


class Scalars:
    """An event file in the run's folder; what a lost part of the run had written beyond `step` is hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise BadSetting("tensorboard is not installed. Install it with pip install tensorboard, or leave the setting out.") from None
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=max(0, step))

    def write(self, record: Mapping[str, Any]) -> None:
        """Every number of the record, at its step."""
        for name in NAMES:
            if isinstance(record.get(name), int | float):
                self._writer.add_scalar(name, record[name], record["step"])

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()
