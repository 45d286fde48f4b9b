"""A teacher in a run: called on every batch, and saved so that a resumed run gets the same outputs."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import PrunerError, SettingError
from trainonce.execution.restoring import in_eval_mode
from trainonce.messages.plain_text import shown
from trainonce.storage.likeness import MismatchError, check_alike, check_weights
from trainonce.teaching.distance import distance_of_classes
from trainonce.teaching.teacher import Teacher

NOT_HEARD = (
    "attach was given a teacher, but the loss doesn't use it. Before backward: loss = pruner.taught(loss, "
    "outputs, images)."
)

_PADDING = "attention_mask"
"""What transformers call the tokens that are no padding; the others are nothing to learn from."""


class Lessons:
    """What one model hears from its teacher."""

    def __init__(self, teacher: Teacher, student: nn.Module) -> None:
        self.teacher = teacher
        self.was_heard = False
        self._is_copy = teacher.model is None
        self._model = _frozen_copy(student) if teacher.model is None else _checked(teacher.model, student)

    def taught(self, loss: Tensor, distance: Tensor) -> Tensor:
        """The loss to train with, given that on the targets and the distance to the teacher."""
        return (1 - self.teacher.weight) * loss + self.teacher.weight * distance

    def distance(
        self, outputs: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, axis: int | None = None
    ) -> Tensor:
        """How far the model's outputs are from the teacher's on the same inputs; `axis` are the classes."""
        self.was_heard = True
        with torch.no_grad(), in_eval_mode(self._model):
            wanted = self._model(*args, **kwargs)
        if self.teacher.loss is None:
            return distance_of_classes(
                outputs,
                wanted,
                temperature=self.teacher.temperature,
                axis=axis,
                counts=_counting(kwargs.get(_PADDING), outputs),
            )
        found = self.teacher.loss(outputs, wanted)
        if not isinstance(found, Tensor) or found.numel() != 1:
            what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise SettingError(f"a teacher's loss must return a scalar, the mean over the batch, got {what}.")
        return found

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the weights of a teacher that only this run has, else their checksum."""
        facts: dict[str, Any] = {"weight": self.teacher.weight, "temperature": self.teacher.temperature}
        if self._is_copy:
            return facts | {"weights": self._model.state_dict()}
        return facts | {"sha256": self._sha256}

    def check_state(self, state: Any) -> None:
        """Raise PrunerError unless this teacher can go on from a state; nothing changes."""
        own = self.state_dict()
        try:
            check_alike(state, {name: None for name in own}, "teacher")
            if self._is_copy:
                check_weights(state["weights"], self._model, {}, "teacher/weights")
        except MismatchError as error:
            raise PrunerError(
                f"the run was saved with another kind of teacher ({shown(error, most=300)}). Pass the same "
                "teacher= as in the first run."
            ) from None
        for name in own.keys() - {"weights"}:
            if state[name] != own[name]:
                raise PrunerError(
                    f"the run was saved with another teacher: its {name} differs. Pass the same teacher= as "
                    "in the first run."
                )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state that `check_state` has accepted."""
        if self._is_copy:
            self._model.load_state_dict(state["weights"])

    @cached_property
    def _sha256(self) -> str:
        found = hashlib.sha256()
        for name, tensor in self._model.state_dict().items():
            if isinstance(tensor, Tensor):
                found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return found.hexdigest()


def check_same_teaching(lessons: Lessons | None, state: Any) -> None:
    """Raise PrunerError unless a state has a teacher exactly if this run has one, and the same."""
    if lessons is not None:
        if state is None:
            raise PrunerError("the run was saved without a teacher. Leave out teacher= to resume it.")
        lessons.check_state(state)
    elif state is not None:
        raise PrunerError("the run was saved with a teacher. Pass the same teacher= to resume it.")


def _frozen_copy(student: nn.Module) -> nn.Module:
    # With gradients, a copied script module gets non-leaf parameters.
    with torch.no_grad():
        return copy.deepcopy(student).requires_grad_(False).eval()


def _checked(model: nn.Module, student: nn.Module) -> nn.Module:
    own = {id(parameter) for parameter in student.parameters()}
    if any(id(parameter) in own for parameter in model.parameters()):
        raise SettingError(
            "the teacher shares weights with the model, so training would change it. "
            "Pass teacher=True for a frozen copy of the model, or a separate model."
        )
    devices = [next((part.device for part in each.parameters()), None) for each in (model, student)]
    if None not in devices and devices[0] != devices[1]:
        raise SettingError(
            f"the teacher is on {devices[0]}, and the model on {devices[1]}. Move it: "
            f"teacher.to({str(devices[1])!r})."
        )
    return model


def _counting(mask: Any, outputs: Any) -> Tensor | None:
    """The mask of padding, if it has a place for each row of logits."""
    logits = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    is_fitting = isinstance(mask, Tensor) and isinstance(logits, Tensor) and mask.shape == logits.shape[:-1]
    return mask if is_fitting else None
