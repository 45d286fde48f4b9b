"""The weights that a run starts from: those that the model has, pretrained ones, or those of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from trainonce.errors import WeightsError
from trainonce.messages.plain_text import shown_path
from trainonce.runs.folder import has_checkpoint, read_config
from trainonce.training.settings import Settings
from trainonce.training.starts import FROM_SCRATCH
from trainonce.zoo.head import NewHead
from trainonce.zoo.transfer import Transfer, plan_transfer
from trainonce.zoo.weight_files import read_weights

OWN = "the model's own weights"


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where the weights come from, in words; and what is still to be copied into the model."""

    words: str
    transfer: Transfer | None = None
    sha256: str | None = None
    new_head: NewHead | None = None
    """The last layer, if it has another number of outputs than the weights are for."""

    def apply(self, model: nn.Module) -> Callable[[], None]:
        """Copy the weights of the file, if there is one, into the model; returns what takes them out."""
        return (lambda: None) if self.transfer is None else self.transfer.apply(model)


def find_origin(settings: Settings, model: nn.Module, *, out: Path | None, resume: bool) -> Origin:
    """The origin of a run's weights; WeightsError if its file can't be used, and nothing is changed.

    A run that is resumed from a checkpoint needs the file no more: the checkpoint has all weights.
    """
    if settings.weights is None:
        return Origin(f"{OWN}, pretrained" if settings.pretrained else OWN)
    if resume and out is not None and has_checkpoint(out):
        known = settings.weights_sha256 or read_config(out).get("weights_sha256")
        return Origin(f"weights of {shown_path(settings.weights)}", sha256=known)
    model_bytes = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    found = read_weights(Path(settings.weights).expanduser(), model_bytes=model_bytes)
    if settings.weights_sha256 not in (None, found.sha256):
        raise WeightsError(
            f"{shown_path(found.path)} is not the file that the run was started with: its sha256 begins with "
            f"{found.sha256[:12]}, not {shown_path(settings.weights_sha256)[:12]}. Pass that file as weights."
        )
    transfer = plan_transfer(found, model)
    return Origin(str(transfer), transfer, found.sha256, transfer.head)


def describe_start(settings: Settings, origin: Origin) -> str:
    """Such as `the weights that the model has; defaults of training from scratch`.

    For fine-tuning, whose defaults few people know, with their values; what was set otherwise comes last.
    """
    start = settings.start
    if start is FROM_SCRATCH:
        return f"{origin.words}; defaults for training {start.name}"
    defaults = start.defaults(settings.opt)
    kept = {name: value for name, value in defaults.items() if getattr(settings, name) == value}
    others = {name: getattr(settings, name) for name in defaults if name not in kept}
    line = f"{origin.words}; defaults for {start.name}: {_listed(kept) or 'none'}"
    return f"{line}; set otherwise: {_listed(others)}" if others else line


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
