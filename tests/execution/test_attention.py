"""The graph for attention computes what torch's own code does, with masks, weights and dropout."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphs.subjects import redraw, relative_difference
from trainonce.execution.attention import free_heads

SETTINGS = list(itertools.product((False, True), repeat=5))
CALLS = [
    {"self": alone, "mask": mask, "padding": padding, "need_weights": weights, "batched": batched}
    for alone, mask, padding, weights, batched in itertools.product(
        (False, True),
        (None, "causal", "bool", "float", "heads"),
        (None, "bool", "float"),
        (False, True),
        (False, True),
    )
    if mask is None or padding is None or (padding == "bool") == (mask in ("bool", "causal"))
]


@pytest.mark.parametrize(("separate", "bias", "bias_kv", "zero", "batch_first"), SETTINGS)
def test_the_graph_computes_what_torch_computes(
    separate: bool, bias: bool, bias_kv: bool, zero: bool, batch_first: bool
):
    widths = {"kdim": 10, "vdim": 7} if separate else {}
    made = {"bias": bias, "add_bias_kv": bias_kv, "add_zero_attn": zero, "batch_first": batch_first}
    attention = nn.MultiheadAttention(12, 3, **made, **widths).double()
    redraw(attention)
    free = copy.deepcopy(attention)
    free_heads(free)
    for parameter in (*attention.parameters(), *free.parameters()):
        parameter.requires_grad_(False)
    for kind in CALLS:
        if separate and kind["self"]:
            continue
        inputs, options = drawn(kind, batch_first, widths)
        for wanted, found in zip(attention(*inputs, **options), free(*inputs, **options), strict=True):
            assert (wanted is None) == (found is None)
            if wanted is not None:
                assert relative_difference([wanted], [found]) < 1e-12, kind


def drawn(kind: dict[str, Any], batch_first: bool, widths: dict[str, int]) -> tuple[list[Tensor], Any]:
    """Inputs and options for a call of attention."""
    generator = torch.Generator().manual_seed(0)
    keys = 4 if kind["self"] else 5

    def tokens(length: int, width: int) -> Tensor:
        sizes = ((2, length) if batch_first else (length, 2)) if kind["batched"] else (length,)
        return torch.randn(*sizes, width, generator=generator, dtype=torch.double)

    query = tokens(4, 12)
    others = [tokens(keys, widths.get("kdim", 12)), tokens(keys, widths.get("vdim", 12))]
    options: dict[str, Any] = {"need_weights": kind["need_weights"], "is_causal": kind["mask"] == "causal"}
    order = torch.ones(4, keys, dtype=torch.bool).triu(1)
    numbers = torch.randn(6 if kind["batched"] else 3, 4, keys, generator=generator, dtype=torch.double)
    options["attn_mask"] = {
        None: None, "causal": order, "bool": order, "float": order * -2.0, "heads": numbers
    }[kind["mask"]]  # fmt: skip
    if options["attn_mask"] is not None and options["attn_mask"].is_floating_point():
        options["attn_mask"] = options["attn_mask"].double()
    if kind["padding"] is not None:
        gone = torch.zeros((2, keys) if kind["batched"] else (keys,), dtype=torch.bool)
        gone[..., -1] = True
        options["key_padding_mask"] = gone if kind["padding"] == "bool" else gone.double() * -3
    options["average_attn_weights"] = kind["padding"] is None
    return ([query] * 3 if kind["self"] else [query, *others]), options


def test_bad_masks_are_refused():
    attention = nn.MultiheadAttention(12, 3, batch_first=True)
    free_heads(attention)
    x = torch.randn(2, 4, 12)
    for options in (
        {"is_causal": True},
        {"attn_mask": torch.zeros(5, 4, 4), "need_weights": False},
        {"attn_mask": torch.zeros(4, 4, dtype=torch.long)},
        {"key_padding_mask": torch.zeros(2, 3, dtype=torch.bool)},
    ):
        with pytest.raises((AssertionError, RuntimeError)):
            attention(x, x, x, **options)


def test_dropout_drops_weights_in_training_only():
    attention = nn.MultiheadAttention(12, 3, dropout=0.5, batch_first=True)
    free = copy.deepcopy(attention)
    free_heads(free)
    x = torch.randn(2, 4, 12)
    for need_weights in (False, True):
        found = []
        for module in (attention, free):
            torch.manual_seed(0)
            found.append(module.train()(x, x, x, need_weights=need_weights)[0])
        torch.testing.assert_close(*found)
        assert not torch.equal(free(x, x, x)[0], free(x, x, x)[0])
        assert torch.equal(free.eval()(x, x, x)[0], free(x, x, x)[0])
