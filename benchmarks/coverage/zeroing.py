"""Layers silenced by the outputs that a smaller model keeps: takes layers and numbers, zeroes all others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Kept = dict[str, Tensor]
"""For each layer that became smaller, by name, the outputs that it keeps."""

_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
_BY_ROW = (nn.Linear, nn.modules.conv._ConvNd, *_NORMS)


@torch.no_grad()
def zero_all_but(model: nn.Module, kept: Kept) -> bool:
    """Zero the weights and biases that the layers don't keep; False if one is of a kind not known here."""
    modules = dict(model.named_modules())
    for name, numbers in kept.items():
        module = modules[name]
        if not isinstance(module, _BY_ROW) or module.weight is None:
            return False
        axis = 0
        if isinstance(module, nn.modules.conv._ConvTransposeNd):
            # Its outputs are the second axis, and of grouped ones only those of a group.
            if module.groups > 1:
                return False
            axis = 1
        gone = torch.ones(module.weight.shape[axis], dtype=torch.bool)
        gone[numbers] = False
        indices = gone.nonzero().flatten()
        module.weight.index_fill_(axis, indices, 0)
        if module.bias is not None:
            module.bias.index_fill_(0, indices, 0)
    return True
