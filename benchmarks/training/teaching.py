"""What a teacher adds to a loss, the same for every contender that has one.

Needs torch alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax

WEIGHT, TEMPERATURE = 0.5, 2.0


def taught(loss: Tensor, outputs: Tensor, teacher: nn.Module, inputs: Tensor) -> Tensor:
    """(1 - w) loss + w T^2 KL(teacher at T, student at T), as Hinton et al. (2015) have it."""
    teacher.eval()
    with torch.no_grad():
        wanted = teacher(inputs)
    apart = kl_div(
        log_softmax(outputs / TEMPERATURE, dim=-1).flatten(0, -2),
        log_softmax(wanted / TEMPERATURE, dim=-1).flatten(0, -2),
        reduction="batchmean",
        log_target=True,
    )
    return (1 - WEIGHT) * loss + WEIGHT * TEMPERATURE**2 * apart
