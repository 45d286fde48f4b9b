"""The pruner that `attach` returns: call `step` in the training loop, get the small model from `finish`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.pruning.algorithm import AutoTrainOnce
from trainonce.pruning.finishing import refusal_to_finish, settle
from trainonce.pruning.guards.stepwatch import StepWatch
from trainonce.pruning.loading import check_can_load, resume_teaching
from trainonce.pruning.notices import warn_user
from trainonce.pruning.optimizers import members_of
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.progress import Progress
from trainonce.pruning.pruner_state import STATE_VERSION, check_pruner_state, fingerprint_of
from trainonce.pruning.restored import note_restored
from trainonce.pruning.saved_run import SavedRun
from trainonce.pruning.schedule import FEW_UPDATES, Phase, Schedule, ShortRunWarning, enough_steps
from trainonce.structure.partition import Partition
from trainonce.structure.plan import Plan
from trainonce.teaching.lessons import NOT_HEARD, Lessons, check_same_teaching

__all__ = ["Pruner", "PrunerError", "ShortRunWarning"]


class Pruner:
    """Learns which channels to drop, pulls them to zero while the model trains, then cuts them out.

    Made by `trainonce.attach`. It follows the optimizer through hooks; call `step` once after each
    `optimizer.step()`, and `finish` at the end.
    """

    def __init__(self, algorithm: AutoTrainOnce, lessons: Lessons | None = None) -> None:
        self._algorithm = algorithm
        self.lessons = lessons
        self._timetable = algorithm.timetable
        self._notices = algorithm.notices
        self._budget = algorithm.budget
        self._units = algorithm.budget.units
        self._is_finished = False
        tensors = [algorithm.tensors[rows.tensor] for rows in self._units.writers]
        self._watch = StepWatch(algorithm.optimizer, tensors, self._notices)
        # Through this object: it then lives as long as its hooks, and the next `attach` can find it.
        self._watch.hook(
            before=lambda: self._algorithm.before_optimizer_step(),
            after=lambda: self._algorithm.after_optimizer_step(),
        )
        num_updates, learns = self._timetable.num_updates, self.policy.uses_loss and self.policy.learns
        if learns and num_updates < FEW_UPDATES and self.keep_target < 1:
            warn_user(ShortRunWarning(num_updates, enough_steps(self.schedule, self._timetable.total_steps)))

    def step(self, loss: Callable[[], Tensor] | None = None) -> bool:
        """Advance by one training step; call it once after each `optimizer.step()`.

        Args:
            loss: A function without arguments that returns the loss on a batch; it does not call `backward`.
                The current batch is fine: `pruner.step(lambda: criterion(model(images), labels))`. It is
                called only when channels are chosen, to hand over what they did, and for updates of a
                policy that learns from the loss, such as a controller: only that needs it.

        Returns:
            True if the model was cut in this step. With DistributedDataParallel, wrap the model again then.
        """
        if self._is_finished:
            raise PrunerError("this pruner has finished. Attach a new one to prune further.")
        self._check_ready("step")
        if self.num_steps >= self.total_steps:
            self._notices.once(
                "beyond the end",
                f"step() was called more than total_steps={self.total_steps} times and does nothing anymore. "
                "Call finish().",
            )
            return False
        if self._algorithm.needs_loss and not callable(loss):
            raise PrunerError(
                "the controller learns in this step: call step(loss) with a function that returns the loss "
                "on a batch, such as lambda: criterion(model(images), labels)."
            )
        if loss is not None and not callable(loss):
            raise PrunerError("step takes a function: pass lambda: criterion(model(images), labels).")
        if self.lessons is not None and not self.lessons.was_heard:
            raise PrunerError(NOT_HEARD)
        self._watch.pruner_stepped()
        return self._algorithm.advance(loss)

    def taught(self, loss: Tensor, outputs: Any, /, *args: Any, **kwargs: Any) -> Tensor:
        """The loss plus the distance to the teacher's output; just the loss if there is no teacher.

        Example: `outputs = model(images); loss = pruner.taught(criterion(outputs, labels), outputs, images)`

        Args:
            loss: The loss on the targets, a mean over the batch.
            outputs: What the model returned.
            args: What the model was called with; the teacher is called with the same.
            kwargs: Its keyword inputs. Tokens that an `attention_mask` hides don't count.
        """
        if self.lessons is None:
            return loss
        return self.lessons.taught(loss, self.lessons.distance(outputs, args, kwargs))

    def finish(self) -> nn.Module:
        """The small model: the one that was attached, without wrappers, cut now if it wasn't before.

        Call it after the last step. PrunerError if dropped channels are not at zero yet.
        """
        if self._is_finished:
            return self.model
        self._check_ready("finish")
        if (words := refusal_to_finish(self._algorithm, self._watch)) is not None:
            raise PrunerError(words)
        if self._algorithm.awaits_cut:
            self._algorithm.cut()
        settle(self._algorithm)
        self._is_finished = True
        self.detach()
        return self.model

    def detach(self) -> None:
        """Remove the hooks from the optimizer and leave the model as it is; the pruner can't step anymore."""
        self._watch.unhook()

    def follow(self, follower: object) -> None:
        """Cut an averaged copy of the model with it from now on, as `attach(followers=[...])` does.

        Args:
            follower: A module, or an object that holds one: made from the model as it is now.
        """
        self._check_attached("follow")
        self._algorithm.followers.add(follower)

    @property
    def is_attached(self) -> bool:
        """Whether the pruner follows the optimizer: False after `detach` or `finish`."""
        return self._watch.is_hooked

    @property
    def num_steps(self) -> int:
        """How many steps of the run are done."""
        return self._algorithm.num_steps

    @property
    def total_steps(self) -> int:
        """How many steps the whole run has, as it was given to `attach`."""
        return self._timetable.total_steps

    @property
    def model(self) -> nn.Module:
        """The model that is pruned, without wrappers."""
        return self._algorithm.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer whose steps are followed, without wrappers; the first if there are several."""
        return self.optimizers[0]

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """All optimizers whose steps are followed, without wrappers."""
        return members_of(self._algorithm.optimizer)

    @property
    def schedule(self) -> Schedule:
        """The schedule, as it was given to `attach`."""
        return self._algorithm.settings.schedule

    @property
    def policy(self) -> Policy:
        """How channels are chosen."""
        return self._algorithm.settings.policy

    @property
    def controller_loss(self) -> float | None:
        """The controller's last loss; None before its first update."""
        return self._algorithm.controller_loss

    @property
    def partition(self) -> Partition:
        """What `inspect` found in the dense model."""
        return self._units.partition

    @property
    def phase(self) -> Phase:
        """The current phase; compares equal to its name, as in `pruner.phase == "search"`."""
        if self.shrunk:
            return Phase.SMALL
        if self._algorithm.decision.is_final:
            return Phase.SETTLE
        return Phase.SEARCH if self._timetable.is_searching(self.num_steps) else Phase.WARM_UP

    @property
    def shrunk(self) -> bool:
        """Whether the model has been cut to its final size."""
        return self._algorithm.is_small

    @property
    def cuts(self) -> tuple[Plan, ...]:
        """The cuts so far, each a plan for the model that the one before left."""
        return tuple(self._algorithm.cuts.plans)

    @property
    def plan(self) -> Plan | None:
        """The whole cut as one plan for the dense model; None until it is decided."""
        decision = self._algorithm.decision
        return self._algorithm.cuts.whole_plan(decision.masks) if decision.is_final else None

    @property
    def masks(self) -> dict[str, Tensor]:
        """For each group, a 0 or 1 per unit: the decision, or what the policy would keep now."""
        return self._units.split(self._algorithm.masks)

    @property
    def alive(self) -> dict[str, tuple[int, int]]:
        """For each group, how many units stay of how many."""
        return {name: (int(mask.sum()), len(mask)) for name, mask in self.masks.items()}

    @property
    def keep_now(self) -> float:
        """The share of the FLOPs (with keep_params, of the parameters) that the current masks keep."""
        return self._budget.share_of(self._algorithm.masks)

    @property
    def keep_target(self) -> float:
        """The budget: keep_flops or keep_params."""
        return self._budget.share

    @property
    def kept_because(self) -> dict[str, str]:
        """Groups that this run leaves alone, with the reason."""
        kept = {
            group.name: group.kept_because
            for group in self.partition.groups
            if group.kept_because is not None
        }
        return kept | dict(self._units.kept_here) | self._algorithm.held_groups

    def __repr__(self) -> str:
        return Progress.of(self._algorithm, self.phase).as_line()

    def _repr_html_(self) -> str:
        return Progress.of(self._algorithm, self.phase).as_html()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values that resume the run, together with the model's and optimizer's state."""
        groups = fingerprint_of(self._units, self._budget)
        state = {"version": STATE_VERSION, "groups": groups, **self._algorithm.state_dict()}
        return state if self.lessons is None else state | {"teacher": self.lessons.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` returned.

        Call it on the dense model, before the model's and the optimizer's own `load_state_dict`: the model
        and its followers are cut here to the size they had. A model that was restored from the same state has
        that size already, and is left as it is.

        Args:
            state: What `state_dict` returned, in a run with the same model, budget and total_steps.
        """
        self.check_state(state)
        self._algorithm.resume(SavedRun.of(state))
        resume_teaching(self.lessons, state)
        note_restored(self.model, ())

    def check_state(self, state: Any) -> None:
        """Raise PrunerError if this state can't be loaded; nothing changes.

        Args:
            state: What `load_state_dict` would be given.
        """
        self._check_attached("load_state_dict")
        check_pruner_state(
            state,
            fingerprint=fingerprint_of(self._units, self._budget),
            total_steps=self.total_steps,
            units=self._units,
            policy=self.policy,
        )
        check_same_teaching(self.lessons, state.get("teacher"))
        check_can_load(self._algorithm, state)

    def _check_attached(self, method: str) -> None:
        if not self.is_attached:
            raise PrunerError(
                f"{method}() was called after detach(), or after a new pruner replaced this one. Use the new "
                "one."
            )

    def _check_ready(self, method: str) -> None:
        self._check_attached(method)
        if self._algorithm.awaits_state:
            raise PrunerError(
                f"{method}() was called on a restored model before the pruner knows its run. Call "
                "load_state_dict with the state that trainonce.restore was given."
            )
