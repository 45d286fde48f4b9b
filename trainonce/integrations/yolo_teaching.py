"""A teacher for a YOLO: its head's outputs are compared while the model computes its own loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.integrations.teaching import Answer, taught
from trainonce.pruning.pruner import Pruner
from trainonce.teaching.teacher import find_teacher


def check_yolo_teacher(given: Any) -> None:
    """Raise PrunerError for a teacher that does not say how far apart two outputs of a YOLO are."""
    teacher = find_teacher(given)
    if teacher is not None and teacher.loss is None:
        raise PrunerError(
            "a YOLO returns boxes and no logits, so a teacher needs a loss for them: "
            "teacher=trainonce.Teacher(loss=...), a function of what the head returns in training and in "
            "eval mode."
        )


def teach_yolo(model: Any, pruner: Pruner) -> Callable[[], None]:
    """Add the teacher's part to every loss that a YOLO's model computes in training; undone by the result.

    A model that is called with a batch returns its loss: a sum over the images, for each kind of error.
    """
    heads: list[Any] = []

    def note(_: nn.Module, __: Any, outputs: Any) -> None:
        heads[:] = [outputs]

    def add(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        batch = args[0] if args else None
        if not isinstance(batch, Mapping) or not module.training or not heads:
            return None
        loss, *rest = output
        images: Tensor = batch["img"]
        answer = Answer((images,), {}, heads.pop())
        # One number per kind of error, of which the trainer takes the sum.
        total = taught(pruner, loss.sum() / len(images), [answer]) * len(images)
        return total[None], *rest

    hooks = [model.model[-1].register_forward_hook(note), model.register_forward_hook(add)]

    def undo() -> None:
        for hook in hooks:
            hook.remove()

    return undo
