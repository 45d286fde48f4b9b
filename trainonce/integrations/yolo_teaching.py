"""A teacher for a YOLO: its head's outputs are compared while the model computes its own loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.integrations.teaching import Answer, taught
from trainonce.pruning.pruner import Pruner
from trainonce.teaching.teacher import find_teacher


def check_yolo_teacher(given: Any, wrapper: type) -> None:
    """Raise PrunerError for a teacher without a loss for boxes, or in Ultralytics' `wrapper` of networks."""
    teacher = find_teacher(given)
    if teacher is not None and isinstance(teacher.model, wrapper):
        raise PrunerError(
            f"the teacher's model is a {type(teacher.model).__name__}, whose train() trains it. Pass its "
            "network: teacher=trainonce.Teacher(model=YOLO(...).model, loss=...)."
        )
    if teacher is not None and teacher.loss is None:
        raise PrunerError(
            "a YOLO returns boxes and no logits, so a teacher needs a loss for them: "
            "teacher=trainonce.Teacher(loss=...), a function of what the head returns in training and in "
            "eval mode."
        )


class YoloLessons:
    """The teacher's part in every loss that a YOLO's model computes in training, until `end`.

    A model that is called with a batch returns its loss: a sum over the images, for each kind of error.
    """

    def __init__(self, model: Any, pruner: Pruner) -> None:
        self._pruner = pruner
        self._said: list[Any] = []
        self._hooks = [
            model.model[-1].register_forward_hook(self._note),
            model.register_forward_hook(self._add),
        ]

    def leave(self, copied: Any) -> None:
        """Rid a copy of the model of the hooks that were copied with it."""
        for module, hook in zip((copied.model[-1], copied), self._hooks, strict=True):
            module._forward_hooks.pop(hook.id, None)

    def end(self) -> None:
        """Leave the model itself."""
        for hook in self._hooks:
            hook.remove()

    def _note(self, head: nn.Module, _: Any, outputs: Any) -> None:
        self._said[:] = [outputs] if head.training else []

    def _add(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        batch = args[0] if args else None
        if not isinstance(batch, Mapping) or not self._said:
            return None
        loss, *rest = output
        images: Tensor = batch["img"]
        answer = Answer((images,), {}, self._said.pop())
        # One number per kind of error, of which the trainer takes the sum.
        total = taught(self._pruner, loss.sum() / len(images), [answer]) * len(images)
        return total[None], *rest

    def __deepcopy__(self, memo: Any) -> YoloLessons:
        return self
