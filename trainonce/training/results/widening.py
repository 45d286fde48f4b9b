"""The small model in the dense model's shape: weights back where they came from, cut channels at zero.

Both must agree on every sample. That is the promise of a run, checked on real data.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest

import torch
from torch import Tensor, nn

from trainonce.data.samples import Samples
from trainonce.errors import ModelError
from trainonce.execution.comparison import Difference
from trainonce.execution.comparison import compare as compare_tensors
from trainonce.execution.forward import call_model, output_tensors
from trainonce.execution.logits import class_axis, find_logits, logits_of
from trainonce.execution.restoring import in_eval_mode
from trainonce.structure.plan import Plan
from trainonce.structure.succession import joined
from trainonce.surgery.norms import unscale_weights
from trainonce.surgery.slicing import plans_of, silence
from trainonce.training.batches.sources import count_samples
from trainonce.training.loop.buffers import copy_buffers
from trainonce.training.loop.processes import moved

UNITS = {1: "samples", 3: "pixels"}
"""What a label belongs to, by the number of dimensions of the targets."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the small model and its dense counterpart agree."""

    num_samples: int
    num_same: int | None
    """How often both predict the same class; None if the model is not a classifier."""

    num_compared: int | None
    """Number of predictions compared: one per sample, pixel or position."""

    unit: str
    """What is counted: samples, pixels or positions."""

    largest_difference: float
    """Largest absolute difference of the outputs, relative to the largest output."""


@torch.no_grad()
def widen(small: nn.Module, dense: nn.Module) -> nn.Module:
    """`dense`, changed in place to compute what `small` does; it may be a cut model itself."""
    plan = reduce(joined, plans_since(dense, small))
    silence(dense, plan)
    cuts: dict[str, dict[int, Tensor]] = {}
    for cut in plan.cuts:
        cuts.setdefault(cut.tensor, {})[cut.axis] = torch.tensor(cut.kept)
    copy_buffers(small, dense, without=cuts)
    narrow = {**dict(small.named_parameters()), **dict(small.named_buffers())}
    parameters = dict(dense.named_parameters())
    for name, wide in {**parameters, **dict(dense.named_buffers())}.items():
        if (kept := cuts.get(name)) is None:
            if name in parameters:
                wide.copy_(narrow[name])
            continue
        positions = [kept.get(axis, torch.arange(size)) for axis, size in enumerate(wide.shape)]
        wide[torch.meshgrid(*positions, indexing="ij")] = narrow[name].to(wide.device)
    for one in plans_since(dense, small):
        unscale_weights(dense, one)
    return dense


def plans_since(dense: nn.Module, small: nn.Module) -> tuple[Plan, ...]:
    """The cuts that lead from `dense` to `small`."""
    return plans_of(small)[len(plans_of(dense)) :]


@torch.no_grad()
def compare(small: nn.Module, wide: nn.Module, samples: Samples, *, batch_size: int) -> Agreement:
    """How far both models agree in eval mode, over all samples and all tensors in their outputs."""
    device = next(small.parameters()).device
    num_samples, num_same, num_compared, unit = 0, 0, 0, ""
    differences: defaultdict[int, Difference] = defaultdict(Difference)
    with in_eval_mode(small, wide):
        for inputs, targets in samples.batches(
            (piece, 0) for piece in torch.arange(len(samples)).split(batch_size)
        ):
            inputs, targets = moved(inputs, device), moved(targets, device)
            one, other = call_model(small, inputs), call_model(wide, inputs)
            num_samples += count_samples(inputs, targets) or 1
            for place, pair in enumerate(
                zip_longest(output_tensors(other), output_tensors(one), fillvalue=torch.empty(0))
            ):
                differences[place] |= compare_tensors(*pair)
            scores, axis = find_logits(one), class_axis(find_logits(one), targets)
            if scores is not None and axis is not None:
                others = logits_of(other)
                # The argmax of NaN is not a prediction.
                is_class = ~(scores.isnan().any(dim=axis) | others.isnan().any(dim=axis))
                same = is_class & (scores.argmax(dim=axis) == others.argmax(dim=axis))
                num_same, num_compared = num_same + int(same.sum()), num_compared + same.numel()
                unit = UNITS.get(same.dim(), "positions")
    if not differences:
        raise ModelError("the model returns no tensor, so the small and the dense model can't be compared.")
    return Agreement(
        num_samples=num_samples,
        num_same=num_same if num_compared else None,
        num_compared=num_compared or None,
        unit=unit,
        largest_difference=max(found.relative for found in differences.values()),
    )
