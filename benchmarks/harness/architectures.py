"""Models for images of 32 x 32 by name: takes `resnet56` or `mobilenet_v2`, gives the model.

Needs torch alone.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType

import torch
from torch import nn

from benchmarks.harness.resnet import build_resnet
from benchmarks.sheets.sheet import ROOT

_INVERTED = ROOT / "trainonce" / "zoo" / "inverted.py"


def build_architecture(name: str, *, seed: int) -> nn.Module:
    """A model whose first weights depend on the seed only."""
    if name.startswith("resnet"):
        return build_resnet(int(name.removeprefix("resnet")), seed=seed)
    if name != "mobilenet_v2":
        raise ValueError(f"there is no {name}. Known are mobilenet_v2 and resnetN, such as resnet56.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _inverted().MobileNetV2(10)


@cache
def _inverted() -> ModuleType:
    """The zoo's module by its file: the package around it can't be imported on HESSO's torch."""
    spec = importlib.util.spec_from_file_location("inverted", _INVERTED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # only_train_once writes whole models to disk when it cuts them: their class must be found by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def said_architecture(name: str) -> str:
    """For people."""
    return "MobileNetV2" if name == "mobilenet_v2" else name.replace("resnet", "ResNet-")
