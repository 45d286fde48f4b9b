"""What only happens in training (dropped paths, dropped channels) takes nothing from what can be cut."""

from __future__ import annotations

import pytest
import timm
import torch

import trainonce

FAMILIES = ("resnet10t", "test_byobnet", "test_convnext", "test_efficientnet", "test_mambaout", "test_vit")
"""Small models of families that have `drop_path_rate`."""


def prunable_share(name: str, **settings: object) -> float:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5, **settings)
    partition = trainonce.inspect(model, torch.randn(1, 3, 32, 32))
    return partition.prunable_macs / partition.macs


@pytest.mark.parametrize("name", FAMILIES)
def test_dropout_and_drop_path_keep_nothing(name: str):
    settings = {"img_size": 32} if "vit" in name else {}
    without = prunable_share(name, **settings)
    assert without > 0.1
    assert prunable_share(name, drop_path_rate=0.2, drop_rate=0.2, **settings) == without


def test_drop_block_keeps_nothing():
    assert prunable_share("resnet10t", drop_block_rate=0.1) == prunable_share("resnet10t")
