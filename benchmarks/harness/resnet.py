"""ResNets for images of 32 x 32 (He et al., CVPR 2016, section 4.2): takes a depth, gives the model.

Needs torch alone.

Where the width doubles the shortcut is a 1 x 1 convolution: the padded identity is a shape that some peers
can't cut.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """Two 3 x 3 convolutions and a way around them."""

    def __init__(self, num_inputs: int, num_outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_inputs, num_outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(num_outputs)
        self.conv2 = nn.Conv2d(num_outputs, num_outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(num_outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or num_inputs != num_outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(num_inputs, num_outputs, 1, stride, bias=False), nn.BatchNorm2d(num_outputs)
            )

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.relu(self.norm1(self.conv1(images)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.shortcut(images))


class SmallImageResNet(nn.Module):
    """A stem, three stages, an average over places and one linear layer."""

    def __init__(self, depth: int, *, num_classes: int = 10, num_colours: int = 3) -> None:
        super().__init__()
        if (depth - 2) % 6:
            raise ValueError(
                f"the depth must be 6 n + 2, got {depth}. Known from the paper: 20, 32, 44, 56, 110."
            )
        self.stem = nn.Conv2d(num_colours, WIDTHS[0], 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        blocks: list[nn.Module] = []
        before = WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for number in range((depth - 2) // 6):
                blocks.append(Block(before, width, stride=2 if stage and not number else 1))
                before = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.relu(self.norm(self.stem(images)))
        hidden = self.blocks(hidden)
        return self.head(torch.flatten(functional.adaptive_avg_pool2d(hidden, 1), 1))


def build_resnet(depth: int, *, seed: int, num_colours: int = 3) -> SmallImageResNet:
    """A ResNet whose first weights depend on the seed only (He's initialisation for convolutions)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SmallImageResNet(depth, num_colours=num_colours)
        draw_weights(model)
    return model


def draw_weights(model: nn.Module) -> None:
    """First weights as in the paper, whatever the widths."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d | nn.Linear):
            module.reset_parameters()
