"""A teacher in another library's trainer: model calls are recorded, and the loss gets the teacher's part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.pruning.pruner import Pruner


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a module was called with, and what it returned."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any


@contextmanager
def answers_of(module: nn.Module) -> Iterator[list[Answer]]:
    """Inside, every call of the module is noted."""
    found: list[Answer] = []

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
        found.append(Answer(args, kwargs, outputs))

    hook = module.register_forward_hook(note, with_kwargs=True)
    try:
        yield found
    finally:
        hook.remove()


def taught(pruner: Pruner, loss: Tensor, answers: list[Answer], *, share: float = 1.0) -> Tensor:
    """The loss with the teacher's part; the loss itself without a teacher.

    `share` is what a mean over this batch counts in the whole step, if the loss is scaled to that already.
    """
    lessons = pruner.lessons
    if lessons is None:
        return loss
    if not answers:
        raise PrunerError(
            f"the loss was computed without calling the {type(pruner.model).__name__} "
            "that is pruned, so the teacher can't be given the same inputs. Leave out "
            "teacher=."
        )
    distances = [lessons.distance(answer.outputs, answer.args, answer.kwargs) for answer in answers]
    return lessons.taught(loss, share * sum(distances[1:], distances[0]) / len(distances))
