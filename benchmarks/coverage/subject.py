"""The model under test.

Takes a source such as `timm:resnet18` or `others:monai/UNet`, gives it with weights in which nothing can
hide.

Fresh models have zero biases, gains of 1e-6 and deviations of 0.02, behind which a wrong cut looks right.
"""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.coverage.calls import SEED
from benchmarks.coverage.others.catalogue import build_other, is_other
from trainonce.zoo.sources import Source, build

_NOISE = 0.3


def load_subject(source: str) -> Source:
    """The model and its example, the same numbers each time."""
    torch.manual_seed(SEED)
    subject = build_other(source) if is_other(source) else build(source)
    redraw_weights(subject.model)
    for module in subject.model.modules():
        if hasattr(module, "score_thresh"):
            # A detector that finds nothing returns empty tensors, which are equal whatever was cut.
            module.score_thresh = 0.0
    return subject


@torch.no_grad()
def redraw_weights(model: nn.Module) -> None:
    """Draw matrices with deviation 1 / sqrt(fan_in), shift vectors by up to 0.3, spread variances."""
    generator = torch.Generator().manual_seed(SEED)
    for parameter in model.parameters():
        if not parameter.is_floating_point():
            continue
        if parameter.dim() < 2:
            parameter += _uniform(parameter, -_NOISE, _NOISE, generator)
        elif parameter.shape[0] == 1:
            # Position embeddings and class tokens: one row, so there is no fan-in to speak of.
            parameter.normal_(0, _NOISE, generator=generator)
        else:
            fan_in = parameter[0].numel()
            parameter.normal_(0, max(fan_in, 1) ** -0.5, generator=generator)
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.copy_(_uniform(buffer, 0.5, 1.5, generator))
        elif name.endswith("running_mean"):
            buffer.copy_(_uniform(buffer, -_NOISE, _NOISE, generator))


def _uniform(like: torch.Tensor, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    return (
        torch.rand(like.shape, generator=generator, dtype=torch.float32)
        .mul_(high - low)
        .add_(low)
        .to(like.dtype)
    )
