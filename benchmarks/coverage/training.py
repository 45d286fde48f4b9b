"""One training step on any model.

Takes a model and an example, gives what is wrong with the step, if anything is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.coverage.calls import call, flatten, map_tensors
from trainonce.structure.channels import Example

_LEARNING_RATE = 1e-3
_SMALL_KEYPOINTS = 17


def take_training_step(model: nn.Module, example: Example, batch: Example | None = None) -> str | None:
    """Forward in train mode, sum of squares of the outputs, backward, SGD; None if all of it works.

    Without a batch it is made from the example.
    """
    model.train()
    try:
        optimizer = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE)
        optimizer.zero_grad()
        loss = sum_of_squares(call(model, training_batch(example) if batch is None else batch))
        if not loss.requires_grad:
            return "no output depends on a parameter"
        loss.backward()
        if not any(parameter.grad is not None for parameter in model.parameters()):
            return "no parameter has a gradient"
        optimizer.step()
        return None if bool(loss.isfinite()) else "the loss is not finite"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    finally:
        model.eval()


def sum_of_squares(outputs: Any) -> Tensor:
    """A loss for any outputs: the mean square of each floating one, added up."""
    squares = [
        tensor.square().mean() for tensor in flatten(outputs) if tensor.is_floating_point() and tensor.numel()
    ]
    return torch.stack([square.float() for square in squares]).sum()


def training_batch(example: Example) -> Example:
    """The example twice, the second time shifted: batch norm wants two; detectors also get targets."""
    if isinstance(example, tuple) and isinstance(example[0], list):
        images = [image for image in example[0] for _ in range(2)]
        return images, [_target(image) for image in images]
    return map_tensors(lambda tensor: torch.cat([tensor, tensor.flip(-1)]), example)


def _target(image: Tensor) -> dict[str, Tensor]:
    _, height, width = image.shape
    box = torch.tensor([[width * 0.2, height * 0.2, width * 0.8, height * 0.7]], dtype=image.dtype)
    mask = torch.zeros(1, height, width, dtype=torch.uint8)
    mask[:, height // 4 : height // 2, width // 4 : width // 2] = 1
    points = torch.tensor([[[width * 0.5, height * 0.5, 1.0]] * _SMALL_KEYPOINTS], dtype=image.dtype)
    return {"boxes": box, "labels": torch.tensor([1]), "masks": mask, "keypoints": points}
