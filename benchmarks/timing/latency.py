"""How fast models answer: takes models and images, gives the median milliseconds of a call of each.

Needs torch alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

import torch
from torch import Tensor, nn

_FEWEST_CALLS = 5


@torch.no_grad()
def latencies_ms(models: Mapping[str, nn.Module], images: Tensor, *, seconds: float) -> dict[str, float]:
    """In turns, so that a busy machine slows all alike; takes about `seconds`.

    The models are left in eval mode.
    """
    found: dict[str, list[float]] = {name: [] for name in models}
    for model in models.values():
        model.eval()
        for _ in range(2):
            model(images)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, found.values())) < _FEWEST_CALLS:
        for name, model in models.items():
            start = time.perf_counter()
            model(images)
            found[name].append(1000 * (time.perf_counter() - start))
    return {name: median(times) for name, times in found.items()}
