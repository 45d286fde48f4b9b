"""Models for images of 32 x 32 by name: takes `resnet56` or `mobilenet_v2`, gives the model; needs torch alone."""

from __future__ import annotations

import importlib.util

import torch
from torch import nn

from benchmarks.resnet import build_resnet
from benchmarks.sheet import ROOT

_INVERTED = ROOT / "trainonce" / "zoo" / "inverted.py"


def build_architecture(name: str, *, seed: int) -> nn.Module:
    """A model whose first weights depend on the seed only."""
    if name.startswith("resnet"):
        return build_resnet(int(name.removeprefix("resnet")), seed=seed)
    if name != "mobilenet_v2":
        raise ValueError(f"there is no {name}. Known are mobilenet_v2 and resnetN, such as resnet56.")
    # By its file: the package around it can't be imported on HESSO's torch.
    spec = importlib.util.spec_from_file_location("inverted", _INVERTED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return module.MobileNetV2(10)


def said_architecture(name: str) -> str:
    """For people."""
    return "MobileNetV2" if name == "mobilenet_v2" else name.replace("resnet", "ResNet-")
