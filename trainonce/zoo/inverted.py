"""MobileNetV2 for 32-pixel images, with smaller strides."""

from __future__ import annotations

from torch import Tensor, nn

STAGES = (
    # expansion, channels, blocks, stride of the first; the stem and the second stage don't downsample.
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """Inverted residual block: 1x1 expansion, 3x3 depthwise, 1x1 projection, with a skip if shapes allow."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = in_channels * expansion
        widen = [] if expansion == 1 else _convolution(in_channels, width, kernel=1)
        self.body = nn.Sequential(
            *widen,
            *_convolution(width, width, kernel=3, stride=stride, groups=width),
            nn.Conv2d(width, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.adds_input = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return x + self.body(x) if self.adds_input else self.body(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 (Sandler et al., 2018) without the first two downsampling steps."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        in_channels = 32
        for expansion, channels, count, stride in STAGES:
            for block in range(count):
                blocks.append(InvertedResidual(in_channels, channels, stride if block == 0 else 1, expansion))
                in_channels = channels
        self.stem = nn.Sequential(*_convolution(3, 32, kernel=3))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(*_convolution(in_channels, 1280, kernel=1))
        self.fc = nn.Linear(1280, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        """One row of logits per image."""
        return self.fc(self.head(self.blocks(self.stem(images))).mean(dim=(2, 3)))


def _convolution(
    in_channels: int, out_channels: int, *, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    layer = nn.Conv2d(
        in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
    )
    return [layer, nn.BatchNorm2d(out_channels), nn.ReLU6(inplace=True)]
