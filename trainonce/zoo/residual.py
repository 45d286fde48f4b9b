"""ResNets for 32-pixel images, as in CIFAR experiments.

There are two families: the thin ones of He et al. (2015), section 4.2 (ResNet-20 to -110, 16 to 64 channels),
and ImageNet's ResNet-18 and -34 with a stem for small images (64 to 512 channels).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from trainonce.errors import UnknownModelError
from trainonce.messages.plain_text import shorten


class PaddedShortcut(nn.Module):
    """Option A shortcut of He et al.: subsampling and zero padding, without parameters."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.num_new = out_channels - in_channels

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Shapes: N images, C channels, H rows, W columns."""
        x_NCHW = x_NCHW[:, :, :: self.stride, :: self.stride]
        return F.pad(x_NCHW, (0, 0, 0, 0, self.num_new // 2, self.num_new - self.num_new // 2))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a skip connection."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        inner = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, stages of basic blocks, average pooling and a linear classifier."""

    def __init__(
        self, *, widths: Sequence[int], num_blocks: Sequence[int], num_classes: int, has_projection: bool
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        stages: list[nn.Module] = []
        in_channels = widths[0]
        for stage, (width, count) in enumerate(zip(widths, num_blocks, strict=True)):
            blocks: list[nn.Module] = []
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(
                    BasicBlock(
                        in_channels, width, stride, _shortcut(in_channels, width, stride, has_projection)
                    )
                )
                in_channels = width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(in_channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """One row of logits per image."""
        features = self.stages(F.relu(self.bn1(self.conv1(images))))
        return self.fc(features.mean(dim=(2, 3)))


def thin_resnet(depth: int, num_classes: int) -> ResNet:
    """CIFAR ResNet of depth 6n + 2 with option A shortcuts: 125.5 M multiply-adds at depth 56."""
    if depth < 8 or depth % 6 != 2:
        raise UnknownModelError(
            f"the depth of a thin ResNet must be 6n + 2 (20, 32, 44, 56, 110), got {shorten(depth)}."
        )
    num_blocks = (depth - 2) // 6
    return ResNet(
        widths=(16, 32, 64), num_blocks=(num_blocks,) * 3, num_classes=num_classes, has_projection=False
    )


def wide_resnet(num_blocks: Sequence[int], num_classes: int) -> ResNet:
    """ImageNet's ResNet with basic blocks, a 3x3 stem of stride 1 and no pooling."""
    return ResNet(
        widths=(64, 128, 256, 512), num_blocks=num_blocks, num_classes=num_classes, has_projection=True
    )


def _shortcut(in_channels: int, out_channels: int, stride: int, has_projection: bool) -> nn.Module:
    if in_channels == out_channels and stride == 1:
        return nn.Identity()
    if not has_projection:
        return PaddedShortcut(in_channels, out_channels, stride)
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
    )
