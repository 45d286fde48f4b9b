"""A teacher in a run: called on every batch, and saved so that a resumed run gets the same outputs."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import PrunerError, SettingError
from trainonce.execution.restoring import gradients_aside, in_eval_mode
from trainonce.messages.plain_text import kind_and_reason, shown
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
        self.model = _frozen_copy(student) if teacher.model is None else _checked(teacher.model, student)
        """Who is asked."""

    def taught(self, loss: Tensor, distance: Tensor) -> Tensor:
        """The loss to train with, given that on the targets and the distance to the teacher."""
        weight = self.teacher.weight
        # A loss that is not finite, such as one without any labels, would be so times zero, too.
        return distance if weight == 1 else (1 - weight) * loss + weight * distance

    def distance(
        self, outputs: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, axis: int | None = None
    ) -> Tensor:
        """How far the model's outputs are from the teacher's on the same inputs; `axis` are the classes."""
        if not args and not kwargs:
            raise PrunerError(
                "the teacher needs the model's inputs. Pass them: pruner.taught(loss, outputs, images)."
            )
        self.was_heard = True
        # The copy is in eval mode for good.
        with torch.no_grad(), nullcontext() if self._is_copy else in_eval_mode(self.model):
            wanted = self.model(*args, **kwargs)
        if self.teacher.loss is None:
            return distance_of_classes(
                outputs,
                wanted,
                temperature=self.teacher.temperature,
                axis=axis,
                counts=kwargs.get(_PADDING),
            )
        found = self.teacher.loss(outputs, wanted)
        if not isinstance(found, Tensor) or found.numel() != 1:
            what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise SettingError(f"a teacher's loss must return a scalar, the mean over the batch, got {what}.")
        return found

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the weights of a teacher that only this run has, else their checksum."""
        facts: dict[str, Any] = {
            "weight": self.teacher.weight,
            "temperature": self.teacher.temperature,
            "has_own_loss": self.teacher.loss is not None,
        }
        if self._is_copy:
            return facts | {"weights": self.model.state_dict()}
        return facts | {"sha256": self._checksum}

    def check_state(self, state: Any) -> None:
        """Raise PrunerError unless this teacher can go on from a state; nothing changes."""
        own = self.state_dict()
        try:
            check_alike(state, {name: None for name in own}, "teacher")
            if self._is_copy:
                check_weights(state["weights"], self.model, {}, "teacher/weights")
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
            self.model.load_state_dict(state["weights"])

    @cached_property
    def _checksum(self) -> str:
        return checksum_of(self.model)


def checksum_of(model: nn.Module) -> str:
    """A sha256 of all tensors in a model's state."""
    found = hashlib.sha256()
    # Without names: torch.compile gives others.
    for tensor in model.state_dict().values():
        if isinstance(tensor, Tensor):
            found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
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
    # With gradients, a copied script module gets non-leaf parameters; gradients would be copied, too.
    with torch.no_grad(), gradients_aside(student.parameters()):
        try:
            return copy.deepcopy(student).requires_grad_(False).eval()
        except Exception as error:
            # A module may refuse to be copied in any way.
            raise SettingError(
                f"teacher=True needs a copy of the model, which can't be copied ({kind_and_reason(error)}). "
                "Pass a second one with its weights: teacher=other."
            ) from None


def _checked(model: nn.Module, student: nn.Module) -> nn.Module:
    while isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        # It would exchange buffers on every call.
        model = model.module
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
