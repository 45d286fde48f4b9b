"""The small model in the shape of the large one.

Takes a cut model and a dense one, gives what the cut was made from.

The small weights go where they came from, what was cut is silent. Both must compute the same on every sample,
which is the promise of a run, looked at on real data.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest

import torch
from torch import Tensor, nn

from trainonce.data.samples import Samples
from trainonce.execution.comparison import Difference
from trainonce.execution.comparison import compare as compare_tensors
from trainonce.execution.forward import call_model, output_tensors
from trainonce.structure.plan import Plan
from trainonce.structure.succession import joined
from trainonce.surgery.slicing import plans_of, silence
from trainonce.training.batches.sources import count_samples
from trainonce.training.loop.buffers import copy_buffers
from trainonce.training.loop.evaluation import class_axis, find_logits, logits_of
from trainonce.training.loop.processes import moved

UNITS = {1: "samples", 3: "pixels"}
"""What one class number is for, by the number of axes of the targets."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the small model and the large one with silent channels say the same."""

    num_samples: int
    num_same: int | None
    """How often the highest score is of the same class; None if the outputs are no scores of classes."""

    num_compared: int | None
    """How often that was looked at: once per sample, or once per pixel."""

    unit: str
    """What is counted there: samples, pixels or positions."""

    largest_difference: float
    """Between any two numbers of the outputs, relative to the largest of the same output."""


@torch.no_grad()
def widen(small: nn.Module, dense: nn.Module) -> nn.Module:
    """`dense`, which may be a cut model itself, changed in place to compute what `small` does."""
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
    return dense


def plans_since(dense: nn.Module, small: nn.Module) -> tuple[Plan, ...]:
    """The plans that led from one model to the other, without those that `dense` had behind it."""
    return plans_of(small)[len(plans_of(dense)) :]


@torch.no_grad()
def compare(small: nn.Module, wide: nn.Module, samples: Samples, *, batch_size: int) -> Agreement:
    """Both models on every sample, in eval mode; every tensor of their outputs is compared."""
    modes = small.training, wide.training
    small.eval()
    wide.eval()
    device = next(small.parameters()).device
    num_samples, num_same, num_compared, unit = 0, 0, 0, ""
    differences: defaultdict[int, Difference] = defaultdict(Difference)
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
            # The highest of scores that are NaN is no class.
            is_class = ~(scores.isnan().any(dim=axis) | others.isnan().any(dim=axis))
            same = is_class & (scores.argmax(dim=axis) == others.argmax(dim=axis))
            num_same, num_compared = num_same + int(same.sum()), num_compared + same.numel()
            unit = UNITS.get(same.dim(), "positions")
    small.train(modes[0])
    wide.train(modes[1])
    if not differences:
        raise ValueError("there is no tensor in what the model returns")
    return Agreement(
        num_samples=num_samples,
        num_same=num_same if num_compared else None,
        num_compared=num_compared or None,
        unit=unit,
        largest_difference=max(found.relative for found in differences.values()),
    )
