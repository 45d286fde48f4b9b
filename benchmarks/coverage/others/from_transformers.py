"""Newer families of transformers, from the small configs of the zoo; detectors from configs of their own."""

from __future__ import annotations

from functools import partial

import transformers

from benchmarks.coverage.others.catalogue import NAMES, Built, image, tokens
from trainonce.zoo.sources import build


def _from_zoo(name: str) -> Built:
    found = build(f"transformers:{name}")
    return found.model, found.example


def _detr() -> Built:
    backbone = transformers.ResNetConfig(
        depths=[1, 1, 1, 1],
        embedding_size=32,
        hidden_sizes=[32, 64, 128, 256],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        backbone_config=backbone,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        num_queries=8,
    )
    return transformers.DetrForObjectDetection(config), {"pixel_values": image()}


def _rt_detr() -> Built:
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = transformers.RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=64,
        encoder_in_channels=[32, 64, 64],
        encoder_ffn_dim=128,
        encoder_attention_heads=4,
        d_model=64,
        num_queries=10,
        decoder_in_channels=[64, 64, 64],
        decoder_ffn_dim=128,
        decoder_layers=2,
        decoder_attention_heads=4,
        num_labels=4,
    )
    return transformers.RTDetrForObjectDetection(config), {"pixel_values": image()}


def _mamba2() -> Built:
    config = transformers.Mamba2Config(
        vocab_size=64,
        hidden_size=64,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=16,
        n_groups=1,
        state_size=16,
        chunk_size=8,
        use_cache=False,
    )
    return transformers.Mamba2ForCausalLM(config), {"input_ids": tokens()}


def _gemma4() -> Built:
    config = transformers.Gemma4TextConfig(
        vocab_size=64,
        vocab_size_per_layer_input=64,
        hidden_size=64,
        hidden_size_per_layer_input=16,
        intermediate_size=176,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=8,
        global_head_dim=16,
        num_kv_shared_layers=0,
        layer_types=["sliding_attention", "full_attention"],
        pad_token_id=0,
        use_cache=False,
    )
    return transformers.Gemma4ForCausalLM(config), {"input_ids": tokens()}


MODELS = {name: partial(_from_zoo, name) for name in NAMES["transformers"]} | {
    "DetrForObjectDetection": _detr,
    "RTDetrForObjectDetection": _rt_detr,
    "Mamba2ForCausalLM": _mamba2,
    "Gemma4ForCausalLM": _gemma4,
}
