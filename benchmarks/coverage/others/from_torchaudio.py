"""Speech models of torchaudio."""

from __future__ import annotations

import torch
from torchaudio import models

from benchmarks.coverage.others.catalogue import Built

_LENGTHS = torch.tensor([24, 20])


def _conformer() -> Built:
    model = models.Conformer(
        input_dim=32, num_heads=4, ffn_dim=64, num_layers=2, depthwise_conv_kernel_size=7
    )
    return model, (torch.randn(2, 24, 32), _LENGTHS)


def _wav2vec2() -> Built:
    model = models.wav2vec2_model(
        extractor_mode="group_norm",
        extractor_conv_layer_config=[(32, 10, 5), (32, 3, 2), (32, 2, 2)],
        extractor_conv_bias=False,
        encoder_embed_dim=64,
        encoder_projection_dropout=0.1,
        encoder_pos_conv_kernel=16,
        encoder_pos_conv_groups=4,
        encoder_num_layers=2,
        encoder_num_heads=4,
        encoder_attention_dropout=0.1,
        encoder_ff_interm_features=128,
        encoder_ff_interm_dropout=0.1,
        encoder_dropout=0.1,
        encoder_layer_norm_first=False,
        encoder_layer_drop=0.0,
        aux_num_out=16,
    )
    return model, torch.randn(2, 800)


def _conv_tasnet() -> Built:
    model = models.ConvTasNet(
        enc_num_feats=32,
        msk_num_feats=16,
        msk_num_hidden_feats=32,
        msk_num_layers=2,
        msk_num_stacks=2,
    )
    return model, torch.randn(2, 1, 800)


def _emformer() -> Built:
    model = models.Emformer(32, 4, 64, 2, segment_length=4, right_context_length=2)
    return model, (torch.randn(2, 26, 32), _LENGTHS)


def _wav2letter() -> Built:
    return models.Wav2Letter(num_classes=16, input_type="mfcc", num_features=32), torch.randn(2, 32, 200)


MODELS = {
    "Conformer": _conformer,
    "Wav2Vec2": _wav2vec2,
    "ConvTasNet": _conv_tasnet,
    "Emformer": _emformer,
    "Wav2Letter": _wav2letter,
}
