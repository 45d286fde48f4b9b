"""Graph networks of PyTorch Geometric on one small graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import models

from benchmarks.coverage.others.catalogue import Built

_NODES = 20
_FEATURES = 16


def _edges() -> Tensor:
    """Every node with the next one and with the one five further, both ways."""
    here = torch.arange(_NODES)
    pairs = [torch.stack([here, (here + step) % _NODES]) for step in (1, 5)]
    there = torch.cat(pairs, dim=1)
    return torch.cat([there, there.flip(0)], dim=1)


def _network(kind: str, **settings: Any) -> Built:
    model = getattr(models, kind)(_FEATURES, 64, num_layers=3, out_channels=4, **settings)
    return model, (torch.randn(_NODES, _FEATURES), _edges())


def _pna() -> Built:
    degrees = torch.bincount(_edges()[1])
    counts = torch.bincount(degrees)
    words = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"], "deg": counts}
    return _network("PNA", **words)


def _unet() -> Built:
    model = models.GraphUNet(_FEATURES, 32, 4, depth=2)
    return model, (torch.randn(_NODES, _FEATURES), _edges())


MODELS = {
    "GCN": partial(_network, "GCN"),
    "GraphSAGE": partial(_network, "GraphSAGE", norm="batch_norm"),
    "GAT": partial(_network, "GAT", heads=4),
    "GIN": partial(_network, "GIN"),
    "PNA": _pna,
    "GraphUNet": _unet,
}
