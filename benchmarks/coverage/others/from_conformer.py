"""The package `conformer`: a block for speech that takes its heads apart with einops."""

from __future__ import annotations

import torch
from conformer import Conformer

from benchmarks.coverage.others.catalogue import Built


def _conformer() -> Built:
    model = Conformer(dim=64, depth=2, dim_head=16, heads=4, ff_mult=2, conv_kernel_size=7)
    return model, torch.randn(2, 24, 64)


MODELS = {"Conformer": _conformer}
