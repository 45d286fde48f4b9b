"""Auto-Train-Once on one model and one optimizer: call `step` in your loop, `finish` with the small model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.budget import Budget
from trainonce.channels import Partition
from trainonce.comparison import first_nan_buffer, first_not_finite
from trainonce.course import Course
from trainonce.distributed import unwrapped_model
from trainonce.plan import Plan
from trainonce.policies.policy import Policy
from trainonce.projection import Pull
from trainonce.pruner_state import STATE_VERSION, check_pruner_state
from trainonce.saved_run import SavedRun
from trainonce.schedule import FEW_UPDATES, Phase, Schedule, ShortRun, Strength, enough_steps
from trainonce.stepwatch import PrunerError, StepWatch

__all__ = ["Pruner", "PrunerError", "ShortRun"]


class Pruner:
    """Made by `trainonce.attach`: learns which units go, pulls them to zero after each optimizer step, cuts the model when they are."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        tensors: Mapping[str, nn.Parameter],
        budget: Budget,
        total_steps: int,
        policy: Policy,
        schedule: Schedule,
        strength: Strength,
        pull: Pull,
        shrink: bool,
        seed: int,
    ) -> None:
        self._model = unwrapped_model(model)
        self._optimizer = optimizer
        self._units = budget.units
        self._budget = budget
        self._policy = policy
        self._timetable = schedule.in_steps(total_steps)
        self._has_begun = self._finished = self._warned = False
        self.schedule = schedule
        self._course = Course(
            self._model,
            optimizer,
            tensors=tensors,
            budget=budget,
            timetable=self._timetable,
            policy=policy,
            strength=strength,
            pull=pull,
            shrink=shrink,
            seed=seed,
        )
        self._watch = StepWatch(optimizer, [tensors[rows.tensor] for rows in self._units.writers])
        # By way of this object, so that it lives as long as its hooks and can be found by who attaches next.
        self._watch.hook(before=lambda: self._course.before_optimizer_step(), after=lambda: self._course.after_optimizer_step())
        if policy.uses_loss and self._timetable.num_updates < FEW_UPDATES and budget.share < 1:
            warnings.warn(ShortRun(self._timetable.num_updates, enough_steps(schedule, total_steps)), stacklevel=3)

    def step(self, closure: Callable[[], Tensor] | None = None) -> bool:
        """Go on by one training step; call it once after every optimizer step. True in a step in which the model was cut.

        `closure` gives the loss on a batch for the controller; it is called only when the controller is due. Under
        DistributedDataParallel, wrap the model anew when this returns True.
        """
        if self._finished:
            raise PrunerError("this pruner has finished. Attach a new one to go on pruning.")
        self._check_attached("step")
        total_steps = self._timetable.total_steps
        if self.num_steps >= total_steps:
            if not self._warned:
                self._warned = True
                words = f"step() was called more than total_steps={total_steps} times; it does nothing any more. Call finish()."
                warnings.warn(words, RuntimeWarning, stacklevel=2)
            return False
        if self._course.needs_closure and not callable(closure):
            raise PrunerError("the controller is due: call step(closure) with a function that returns the loss on a batch for it.")
        self._watch.pruner_stepped()
        self._has_begun = True
        return self._course.advance(closure)

    def finish(self) -> nn.Module:
        """The small model: the one that was attached, without its wrappers, cut if it wasn't yet. The run must be over."""
        if self._finished:
            return self._model
        self._check_attached("finish")
        if (name := first_not_finite(self._model)) is not None:
            raise PrunerError(
                f"{name} is not finite: the run has diverged, and there is no model to cut. Lower the learning rate or clip gradients, "
                f"and train again; the model is as training left it."
            )
        if (name := first_nan_buffer(self._model)) is not None:
            raise PrunerError(
                f"{name} holds NaN, and so would the small model's outputs: a batch that is not finite went through it. Put it right "
                f"(batch norm: reset_running_stats(), then some batches in training mode) and call finish() again."
            )
        if not self._course.is_ready:
            raise PrunerError(self._why_not_ready())
        if self._course.waits_for_cut:
            self._course.cut()
        self._finished = True
        self.detach()
        return self._model

    def detach(self) -> None:
        """Let go of the optimizer and leave the model as it is; this pruner makes no more steps."""
        self._watch.unhook()

    @property
    def is_attached(self) -> bool:
        """Whether the optimizer's steps are followed: not after `detach` or `finish`."""
        return self._watch.is_hooked

    @property
    def num_steps(self) -> int:
        """How many steps of the run are done."""
        return self._course.num_steps

    @property
    def model(self) -> nn.Module:
        """The user's own module, without wrappers."""
        return self._model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer whose steps are followed, without wrappers."""
        return self._optimizer

    @property
    def controller_loss(self) -> float | None:
        """The last value of the policy's own objective; None before the first."""
        return self._course.controller_loss

    @property
    def partition(self) -> Partition:
        """What `inspect` found in the dense model."""
        return self._units.partition

    @property
    def phase(self) -> Phase:
        """Where the run is; compares equal to its name, as in `pruner.phase == "search"`."""
        if self.shrunk:
            return Phase.SMALL
        if self._course.decision.is_final:
            return Phase.SETTLE
        return Phase.SEARCH if self._timetable.is_searching(self.num_steps) else Phase.WARM_UP

    @property
    def shrunk(self) -> bool:
        """Whether the model has been cut to its final size."""
        return self._course.is_small

    @property
    def cuts(self) -> tuple[Plan, ...]:
        """The cuts of this run so far, each for the model that the one before had left."""
        return tuple(self._course.shrinking.plans)

    @property
    def plan(self) -> Plan | None:
        """What is cut of the dense model in all, once that is decided."""
        decision = self._course.decision
        return self._course.shrinking.whole_plan(decision.masks) if decision.is_final else None

    @property
    def masks(self) -> dict[str, Tensor]:
        """One 0 or 1 per unit of each group: what the policy would keep now, or the decision."""
        return self._units.split(self._course.masks)

    @property
    def alive(self) -> dict[str, tuple[int, int]]:
        """For each group, how many units stay of how many."""
        return {name: (int(mask.sum()), len(mask)) for name, mask in self.masks.items()}

    @property
    def keep_flops_now(self) -> float:
        """The share of the budgeted cost that the masks in force keep."""
        return self._budget.share_of(self._course.masks)

    @property
    def keep_flops_target(self) -> float:
        """The budget."""
        return self._budget.share

    @property
    def kept_because(self) -> dict[str, str]:
        """Groups that this run leaves alone, with the reason."""
        kept = {group.name: group.kept_because for group in self.partition.groups if group.kept_because is not None}
        return kept | dict(self._units.kept_here) | self._course.held_groups

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values that, with the model's and the optimizer's state, resume the run at this step."""
        return {"version": STATE_VERSION, "groups": self._fingerprint(), **self._course.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state; call it before the model's and the optimizer's `load_state_dict`, on the dense model: it is cut here."""
        self.check_state(state)
        self._course.resume(SavedRun.of(state))

    def check_state(self, state: Any) -> None:
        """Raise PrunerError if this is no state of such a run, or the run has begun already; nothing changes."""
        self._check_attached("load_state_dict")
        check_pruner_state(
            state,
            fingerprint=self._fingerprint(),
            total_steps=self._timetable.total_steps,
            units=self._units,
            policy=self._policy,
        )
        if self.cuts:
            raise PrunerError("this model is small already. Load the state onto a pruner that is attached to the dense model.")
        if self._has_begun:
            raise PrunerError(f"this pruner has made {self.num_steps} steps. Load the state right after attach, before the first step.")

    def _check_attached(self, method: str) -> None:
        if not self.is_attached:
            raise PrunerError(
                f"{method}() was called after detach(), or after another pruner was attached in place of this one. Use the new one."
            )

    def _why_not_ready(self) -> str:
        where = f"after {self.num_steps} of {self._timetable.total_steps} steps"
        stuck = self._course.stuck if self._course.decision.is_final else {}
        if stuck:
            name, reason = min(stuck.items())
            return (
                f"finish() was called {where}, but {name} can't be trained ({reason}), so that units of it that are to go are not at zero. "
                f"Unfreeze it, make one more optimizer step, and call finish() again; or attach anew: what is frozen then is kept."
            )
        if self._watch.is_missing:
            return f"finish() was called {where}, but {self._watch.complaint}"
        return f"finish() was called {where}, before what goes was at zero. Train to the end, or attach with the right total_steps."

    def _fingerprint(self) -> dict[str, Any]:
        sizes = {group.name: group.num_channels for group in self._units.groups}
        return {"sizes": sizes, "share": self._budget.share, "counts": self._budget.word}
