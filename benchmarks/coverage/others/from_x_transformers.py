"""Attention stacks of x-transformers, plain and with what recent language models have."""

from __future__ import annotations

from typing import Any

import torch
from x_transformers import Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

from benchmarks.coverage.others.catalogue import Built, image, tokens

_SIZES: dict[str, Any] = {"dim": 64, "depth": 2, "heads": 4, "attn_dim_head": 16}
_WORDS: dict[str, Any] = {"num_tokens": 64, "max_seq_len": 16}


def _decoder() -> Built:
    return TransformerWrapper(**_WORDS, attn_layers=Decoder(**_SIZES)), tokens()


def _modern_decoder() -> Built:
    layers = Decoder(
        **_SIZES, use_rmsnorm=True, ff_glu=True, ff_swish=True, rotary_pos_emb=True, attn_kv_heads=2
    )
    return TransformerWrapper(**_WORDS, attn_layers=layers), tokens()


def _encoder() -> Built:
    layers = Encoder(**_SIZES, attn_qk_norm=True, attn_qk_norm_dim_scale=True)
    return TransformerWrapper(**_WORDS, attn_layers=layers), tokens()


def _vision() -> Built:
    model = ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, attn_layers=Encoder(**_SIZES))
    return model, image(size=32)


def _cross_attention() -> Built:
    model = TransformerWrapper(**_WORDS, attn_layers=Decoder(**_SIZES, cross_attend=True))
    return model, {"x": tokens(), "context": torch.randn(2, 7, 64)}


MODELS = {
    "Decoder": _decoder,
    "DecoderModern": _modern_decoder,
    "Encoder": _encoder,
    "ViT": _vision,
    "CrossAttention": _cross_attention,
}
