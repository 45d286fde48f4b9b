"""Mixup and cutmix: a batch with labels in, mixed images and class probabilities out."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Mixing:
    """Mixes each batch with itself in reverse order; picks one of the two at random if both are on."""

    mixup: float
    cutmix: float
    num_classes: int

    def __call__(self, images_NCHW: Tensor, labels_N: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Mixed images and class probabilities.

        mixed = lambda * one + (1 - lambda) * other,  lambda ~ Beta(alpha, alpha)
        """
        rng = random.Random(seed)
        shares_NK = F.one_hot(labels_N, self.num_classes).to(images_NCHW.dtype)
        if not self.mixup and not self.cutmix:
            return images_NCHW, shares_NK
        cuts = bool(self.cutmix) and (not self.mixup or rng.random() < 0.5)
        alpha = self.cutmix if cuts else self.mixup
        share = rng.betavariate(alpha, alpha)
        if cuts:
            images_NCHW, share = _paste(images_NCHW, share, rng)
        else:
            images_NCHW = torch.lerp(images_NCHW.flip(0), images_NCHW, share)
        return images_NCHW, torch.lerp(shares_NK.flip(0), shares_NK, share)


def _paste(images_NCHW: Tensor, share: float, rng: random.Random) -> tuple[Tensor, float]:
    """The batch with a rectangle of the reversed batch, and the fraction of pixels that are unchanged."""
    height, width = images_NCHW.shape[2:]
    side = (1 - share) ** 0.5
    rows, columns = round(side * height), round(side * width)
    top, left = rng.randint(0, height - rows), rng.randint(0, width - columns)
    mixed = images_NCHW.clone()
    mixed[:, :, top : top + rows, left : left + columns] = images_NCHW.flip(0)[
        :, :, top : top + rows, left : left + columns
    ]
    return mixed, 1 - rows * columns / (height * width)
