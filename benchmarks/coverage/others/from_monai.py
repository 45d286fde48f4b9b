"""Networks of MONAI on small volumes."""

from __future__ import annotations

import torch
from monai.networks import nets
from torch import Tensor

from benchmarks.coverage.others.catalogue import Built


def _volume(channels: int = 1, size: int = 32) -> Tensor:
    return torch.randn(2, channels, size, size, size)


def _unet() -> Built:
    return nets.UNet(3, 1, 3, channels=(16, 32, 64), strides=(2, 2), num_res_units=2), _volume()


def _basic_unet() -> Built:
    return nets.BasicUNet(3, 1, 3, features=(16, 16, 32, 64, 64, 16)), _volume()


def _dyn_unet() -> Built:
    model = nets.DynUNet(
        3,
        1,
        3,
        kernel_size=(3, 3, 3),
        strides=(1, 2, 2),
        upsample_kernel_size=(2, 2),
        filters=(16, 32, 64),
        res_block=True,
    )
    return model, _volume()


def _seg_res_net() -> Built:
    return nets.SegResNet(3, 8, 1, 3, blocks_down=(1, 2, 2), blocks_up=(1, 1)), _volume()


def _unetr() -> Built:
    model = nets.UNETR(
        1, 3, (32, 32, 32), feature_size=16, hidden_size=64, mlp_dim=128, num_heads=4, proj_type="conv"
    )
    return model, _volume()


def _diffusion_unet() -> Built:
    model = nets.DiffusionModelUNet(
        2,
        1,
        1,
        num_res_blocks=(1, 1),
        channels=(16, 32),
        attention_levels=(False, True),
        norm_num_groups=8,
        num_head_channels=8,
    )
    return model, {"x": torch.randn(2, 1, 16, 16), "timesteps": torch.tensor([3, 8])}


MODELS = {
    "UNet": _unet,
    "BasicUNet": _basic_unet,
    "DynUNet": _dyn_unet,
    "SegResNet": _seg_res_net,
    "UNETR": _unetr,
    "DiffusionModelUNet": _diffusion_unet,
}
