"""What a user asks of pruning before a trainer has made the optimizer: the arguments of `attach`, kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.integrations.probe import streams_kept
from trainonce.messages.plain_text import quoted, shown
from trainonce.pruning.attachment import attach
from trainonce.pruning.budget import check_one_budget
from trainonce.pruning.method import Method, find_method
from trainonce.pruning.pruner import Pruner
from trainonce.structure.channels import Example
from trainonce.teaching.teacher import bring, find_teacher

_NAMES = tuple(inspect.signature(attach).parameters)[2:]
"""Everything that `attach` takes besides the model and the optimizer."""


@dataclass(frozen=True, slots=True, eq=False)
class PruningRequest:
    """The arguments of `attach` that a user has given to an adapter."""

    options: Mapping[str, Any]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> PruningRequest:
        """The request.

        PrunerError for an unknown name, BudgetError for a missing or impossible budget, SettingError for what
        is no teacher.
        """
        for name in options:
            if name not in _NAMES:
                meant = get_close_matches(name, _NAMES, n=1)
                hint = f"Did you mean {meant[0]}?" if meant else f"These are known: {', '.join(_NAMES)}."
                raise PrunerError(f"there is no option {quoted(name)}. {hint}")
        check_one_budget(options.get("keep_flops"), options.get("keep_params"))
        find_teacher(options.get("teacher"))
        return cls(dict(options))

    def check_same_run(self, state: Mapping[str, Any], total_steps: int) -> None:
        """Raise PrunerError for the state of a run with another budget or length; nothing has been cut yet.

        Args:
            state: What `pruner.state_dict()` returned.
            total_steps: The trainer's number of optimizer steps; 0 or less if it counts epochs.
        """
        groups = state.get("groups") if isinstance(state, Mapping) else None
        if not isinstance(groups, Mapping):
            # What it is instead is said where it is loaded.
            return
        saved = {groups.get("counts"): groups.get("share"), "total_steps": state.get("total_steps")}
        wanted = {"total_steps": total_steps if total_steps > 0 else None, **self.options}
        for word in ("keep_flops", "keep_params", "total_steps"):
            if wanted.get(word) is not None and saved.get(word) != wanted[word]:
                was = ", ".join(f"{shown(name)}={shown(value)}" for name, value in saved.items())
                raise PrunerError(
                    f"this checkpoint is from a run with {was}, and this one has "
                    f"{word}={wanted[word]}. Resume "
                    "with the settings of that run, or start a new one."
                )

    def check_same_epochs(self, saved: Any, wanted: Any) -> None:
        """Raise PrunerError for the state of a run with another number of epochs, as far as both count them.

        A run's steps are known only when it has its data, which is after its weights are loaded.
        """
        if "total_steps" not in self.options and None not in (saved, wanted) and saved != wanted:
            raise PrunerError(
                f"this checkpoint is from a run with {shown(saved)} epochs, and this one has {wanted}. "
                "Resume with the settings of that run, or start a new one."
            )

    @property
    def needs_loss(self) -> bool:
        """Whether the policy learns from the loss."""
        policy, method = self.options.get("policy"), self.options.get("method")
        if policy is None:
            policy = (Method.default() if method is None else find_method(method)).policy()
        return bool(policy.uses_loss)

    @property
    def budget_name(self) -> str:
        """What the budget counts: keep_flops or keep_params."""
        return "keep_flops" if self.options.get("keep_params") is None else "keep_params"

    def attach(
        self,
        model: nn.Module,
        optimizer: Any,
        *,
        example: Example,
        total_steps: int,
        state: Mapping[str, Any] | None = None,
    ) -> Pruner:
        """Attach as asked for; the example and the number of steps are the trainer's unless they were given.

        With the state of a run that the model was restored from, the pruner resumes it. The random streams of
        Python and numpy continue as if nothing had been inspected, so that it draws the same numbers.
        """
        options = {"example": example, "total_steps": total_steps, **self.options}
        if (teacher := find_teacher(options.get("teacher"))) is not None:
            bring(teacher, model)
        with streams_kept():
            pruner = attach(model, optimizer, **options)
        if state is not None:
            pruner.load_state_dict(state)
        return pruner


def check_alone(callback: object, callbacks: Iterable[object]) -> None:
    """Raise PrunerError if a trainer has another callback of this kind, too: a model has one pruner."""
    if any(other is not callback and isinstance(other, type(callback)) for other in callbacks):
        raise PrunerError(
            f"this trainer has two {type(callback).__name__}s, and a model has one pruner. Leave one of them "
            "out."
        )


def advanced(pruner: Pruner, loss: Callable[[], Tensor] | None, *, is_last: bool) -> bool:
    """Whether the model was cut in this step; after the last one the pruner has finished."""
    num_cuts = len(pruner.cuts)
    pruner.step(loss)
    if is_last:
        pruner.finish()
    return len(pruner.cuts) > num_cuts
