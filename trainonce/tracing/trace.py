"""The one way in to tracing: takes a model and an example, gives its channels in groups.

The model runs on the example in eval and in training mode (`capture`, with one rule per operator in
`operators`), sizes in it are solved for (`sizes`, `contradictions`), and the groups are read off
(`partition`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainonce.errors import ModelError
from trainonce.messages.plain_text import reason_of
from trainonce.structure.channels import Example
from trainonce.structure.partition import Partition
from trainonce.tracing.capture.alternatives import find_alternatives
from trainonce.tracing.capture.record import record
from trainonce.tracing.contradictions import keep_contradicted
from trainonce.tracing.norms import find_norms
from trainonce.tracing.partition import build_partition, keep_before_branches, keep_protected, parameter_order
from trainonce.tracing.sizes.rules import SizeRules
from trainonce.tracing.state.recording import Recording
from trainonce.tracing.state.tracer import ValueNeededError
from trainonce.tracing.swaps import find_swaps


def trace(model: nn.Module, example: Example, *, protect: Sequence[str] = (), streams: bool = False) -> Trace:
    """All that runs of the model show about its channels; leaves the model in training mode.

    With `streams`, channels under a LayerNorm may go.
    """
    recording, needs_values = record_evaluation(model, example, streams=streams)
    record_training(model, example, recording, needs_values=needs_values)
    recording.answers.clear()
    keep_protected(recording, protect)
    return Trace(model, example, recording, keep_contradicted(recording, parameter_order(model)))


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A traced model, from which partitions are read off."""

    model: nn.Module
    example: Example
    recording: Recording
    rules: SizeRules

    def partition(self) -> Partition:
        """The model's channels in groups, as plain data."""
        return build_partition(self.model, self.recording, self.rules, self.example)

    def partition_keeping(self, partition: Partition, reasons: Mapping[str, str]) -> Partition:
        """The partition anew, with some groups of an earlier one kept for the reasons given."""
        for group in partition.groups:
            if group.name in reasons:
                part = group.slices[0]
                labels = self.recording.slots[part.tensor, part.axis][part.positions]
                self.recording.book.keep(labels, reasons[group.name])
        return self.partition()


def record_evaluation(model: nn.Module, example: Example, *, streams: bool = False) -> tuple[Recording, bool]:
    """What the model does in eval mode, and whether values had to be computed to see it.

    Leaves the model in eval mode.
    """
    model.eval()
    known: dict[str, Any] = {
        "alternatives": find_alternatives(model, example),
        "norms": find_norms(model),
        "swaps": find_swaps(model),
        "cuts_streams": streams,
    }
    if not any(parameter.is_meta for parameter in model.parameters()):
        recording = Recording(**known)
        # Whatever fails without values, not only asking for one, is tried again with them.
        with suppress(Exception):
            record(model, example, recording, counts_cost=True, with_values=False)
            return recording, False
    recording = Recording(**known)
    try:
        record(model, example, recording, counts_cost=True, with_values=True)
    except Exception as error:
        words = f"{type(error).__name__}: {reason_of(error, longest=300)}"
        raise ModelError(
            f"{type(model).__name__} fails on the example ({words}). Pass an example that the model accepts."
        ) from error
    return recording, True


def record_training(model: nn.Module, example: Example, recording: Recording, *, needs_values: bool) -> None:
    """Add what only runs in training mode, which reads channels too. Leaves the model in training mode."""
    idle = [
        name
        for name, parameter in model.named_parameters()
        if name not in recording.used and parameter.numel() > 1
    ]
    problem = ""
    for with_values, attempt in itertools.product((False, True), (example, _doubled(example))):
        if needs_values and not with_values:
            continue
        model.train()
        try:
            record(model, attempt, recording, counts_cost=False, with_values=with_values)
        except Exception as error:
            problem = reason_of(error, longest=300)
            needs_values |= isinstance(error, ValueNeededError)
        else:
            break
    else:
        recording.notes.append(
            f"training mode could not be recorded on this example ({problem}); layers "
            "that only training uses were not seen"
        )
    idle = [name for name in idle if name not in recording.used]
    keep_before_branches(recording, idle)
    if idle:
        recording.notes.append(
            f"{len(idle)} parameters are never used on this example, such as {idle[0]}; they are left alone"
        )


def _doubled(example: Example) -> Example:
    """Batch norm in training needs more than one sample."""
    return tree_map_only(
        Tensor, lambda tensor: torch.cat([tensor, tensor]) if tensor.dim() else tensor, example
    )
