"""How inspection grows.

Takes `llama:LAYERS`, gives the seconds and the memory for a decoder of width 4096 without weights.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import trainonce
from benchmarks.coverage.calls import warm_up

__all__ = ["build_llama", "measure_scale", "warm_up"]

_TOKENS = 128


def build_llama(num_layers: int) -> tuple[nn.Module, dict[str, Tensor]]:
    """A decoder shaped like Llama 8B, of so many layers and without weights, and an example for it."""
    config = transformers.LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=num_layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=32000,
        use_cache=False,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).eval()
        # Without a mask of its own transformers looks into the token positions, which have no values on this
        # device.
        example = {
            "input_ids": torch.zeros(1, _TOKENS, dtype=torch.long),
            "attention_mask": torch.zeros(1, 1, _TOKENS, _TOKENS),
        }
    return model, example


def measure_scale(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The seconds and the largest memory of one inspection on the `meta` device."""
    model, example = build_llama(int(source.partition(":")[2]))
    started = time.perf_counter()
    partition = trainonce.inspect(model, example)
    seconds = time.perf_counter() - started
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    yield (
        "inspect",
        {
            "inspect_seconds": seconds,
            "peak_gb": peak_gb,
            "parameters": partition.num_parameters,
            "prunable_share": partition.prunable_macs / partition.macs,
            "num_groups": len(partition.groups),
        },
    )
