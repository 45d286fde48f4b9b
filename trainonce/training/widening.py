"""The small model in the shape of the large one: takes a cut model and a dense one, gives what the cut was made from.

The small weights go where they came from, what was cut is silent. Both must compute the same on every sample, which is the
promise of a run, looked at on real data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from trainonce.succession import joined
from trainonce.surgery import plans_of, silence
from trainonce.training.buffers import copy_buffers
from trainonce.training.evaluation import call, logits_of
from trainonce.training.samples import Samples


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the small model and the large one with silent channels say the same."""

    num_samples: int
    num_same: int
    """Samples with the same highest score."""

    largest_difference: float
    """Between any two scores, relative to the largest score."""


@torch.no_grad()
def widen(small: nn.Module, dense: nn.Module) -> nn.Module:
    """`dense`, changed in place to compute what `small` does, by the plans that made it small."""
    plan = reduce(joined, plans_of(small))
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


@torch.no_grad()
def compare(small: nn.Module, wide: nn.Module, samples: Samples, *, batch_size: int) -> Agreement:
    """Both models on every sample, in eval mode."""
    modes = small.training, wide.training
    small.eval()
    wide.eval()
    device = next(small.parameters()).device
    num_samples, num_same, difference, scale = 0, 0, 0.0, 1e-12
    for inputs, _ in samples.batches((piece, 0) for piece in torch.arange(len(samples)).split(batch_size)):
        inputs = inputs.to(device)
        one, other = logits_of(call(small, inputs)), logits_of(call(wide, inputs))
        num_samples += len(one)
        num_same += int((one.argmax(dim=1) == other.argmax(dim=1)).sum())
        difference = max(difference, float((one - other).abs().max()))
        scale = max(scale, float(other.abs().max()))
    small.train(modes[0])
    wide.train(modes[1])
    return Agreement(num_samples=num_samples, num_same=num_same, largest_difference=difference / scale)
