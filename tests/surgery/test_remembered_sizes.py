"""Sizes that modules remember follow the cut."""

from __future__ import annotations

import pytest
from torch import nn

import trainonce
from graphs.subjects import (
    fresh,
    inspected,
)
from support.chains import chain, half_plan

SIZED = [
    "residual_downsample",
    "conv_grouped_residual",
    "conv_depthwise",
    "conv_depthwise_multiplier",
    "conv_transposed_grouped",
    "norm_group_residual",
    "norm_group_per_channel",
    "norm_instance_affine",
    "norm_prelu_per_channel",
    "attention_unbind",
    "attention_pre_norm_block",
    "heads_grouped_option",
    "embedding_tied",
    "embedding_bag",
    "recurrent_lstm",
    "concat_unet",
]


def check_sizes(module: nn.Module) -> None:
    """What a module of torch says about itself is what its weights are."""
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        assert module.weight.shape[:2] == (module.in_channels, module.out_channels // module.groups)
        assert module.out_channels % module.groups == 0
    elif isinstance(module, nn.modules.conv._ConvNd):
        assert module.weight.shape[:2] == (module.out_channels, module.in_channels // module.groups)
        assert module.in_channels % module.groups == 0
        assert module.out_channels % module.groups == 0
    elif isinstance(module, nn.Linear):
        assert module.weight.shape == (module.out_features, module.in_features)
    elif isinstance(module, nn.modules.batchnorm._NormBase) and module.affine:
        assert module.weight.shape == (module.num_features,)
    elif isinstance(module, nn.GroupNorm):
        assert module.weight.shape == (module.num_channels,)
        assert module.num_channels % module.num_groups == 0
    elif isinstance(module, nn.LayerNorm):
        assert module.weight.shape == tuple(module.normalized_shape)
    elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        assert module.weight.shape == (module.num_embeddings, module.embedding_dim)
    elif isinstance(module, nn.PReLU):
        assert module.weight.shape == (module.num_parameters,)
    elif isinstance(module, nn.LSTM):
        assert module.weight_ih_l0.shape == (4 * module.hidden_size, module.input_size)


@pytest.mark.parametrize("name", SIZED)
def test_modules_say_their_true_sizes(name: str):
    model, _ = fresh(name)
    trainonce.cut(model, trainonce.Plan.random(inspected(name).partition, keep=0.5))
    for module in model.modules():
        check_sizes(module)


def test_depthwise_groups_follow_their_channels():
    model = trainonce.cut(chain(), half_plan(chain()))
    conv = model.depthwise[0]
    assert conv.groups == conv.in_channels == conv.out_channels == 6
    assert model.second[1].num_features == model.head.in_features == 5


def test_number_of_heads_follows():
    model, _ = fresh("attention_unbind")
    attention = model[1]
    plan = trainonce.Plan.random(inspected("attention_unbind").partition, keep=0.5)
    trainonce.cut(model, plan)
    assert (attention.num_heads, attention.head_dim) == (2, 4)
    assert attention.qkv.out_features == 24


def test_group_norm_loses_whole_groups():
    model, _ = fresh("norm_group_per_channel")
    trainonce.cut(model, trainonce.Plan.random(inspected("norm_group_per_channel").partition, keep=0.5))
    norm = next(module for module in model.modules() if isinstance(module, nn.GroupNorm))
    assert norm.num_groups == norm.num_channels == 5
