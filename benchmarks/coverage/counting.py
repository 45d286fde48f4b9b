"""Multiply-adds as torch itself counts them.

Takes a model and an example, gives half of `FlopCounterMode`.
"""

from __future__ import annotations

from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.coverage.calls import call, map_tensors
from benchmarks.harness.flops import count_macs_of, on_meta
from trainonce.structure.channels import Example


def count_macs(model: nn.Module, example: Example) -> tuple[int, str]:
    """The multiply-adds of one call, and whether they were counted on `meta` or on `cpu` tensors."""
    try:
        bare, bare_example = on_meta(model), map_tensors(lambda tensor: tensor.to("meta"), example)
        return count_macs_of(lambda: call(bare, bare_example)), "meta"
    except Exception:
        # Sizes that depend on values (detectors) need values. Fused attention is not counted on the CPU, its
        # parts are.
        with sdpa_kernel(SDPBackend.MATH):
            return count_macs_of(lambda: call(model, example)), "cpu"
