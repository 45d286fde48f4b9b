"""Auto-Train-Once on one model and one optimizer: call `step` in your loop, `finish` with the small model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.budget import Budget
from trainonce.channels import Partition, WrongPlan
from trainonce.distributed import averaged, gradient_exchange_paused, same_everywhere, unwrapped_model
from trainonce.gates import untouched
from trainonce.inspection import cut
from trainonce.lastwriters import find_gates
from trainonce.plan import Plan
from trainonce.policies.policy import Policy, Search
from trainonce.projection import Projection, Pull
from trainonce.schedule import Phase, Schedule, Strength
from trainonce.surgery import apply_plan

STATE_VERSION = 1
FEW_UPDATES = 50


class PrunerError(ValueError):
    """A pruner used in a way that can't work; its state is as before."""


class ShortRun(UserWarning):
    """A run in which the controller learns too seldom to choose well."""


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
        self._strength = strength
        self._pull = pull
        self._shrinks = shrink
        self.schedule = schedule
        self._timetable = schedule.in_steps(total_steps)
        self._gates = find_gates(self._model, self._units, tensors, budget.units.partition.example) if policy.uses_loss else None
        self._projection = Projection(self._units, tensors, optimizer)
        policy.start(Search(self._units, tensors, budget, seed, self._timetable.num_updates, self._search_progress))
        self._num_steps = 0
        self._floor: Tensor | None = None
        self._frozen: Tensor | None = None
        self._shrunk = self._finished = self._warned = False
        self.controller_loss: float | None = None
        """The last value of the policy's own objective; None before the first."""
        self._hooks = [
            optimizer.register_step_pre_hook(lambda *_: self._before_optimizer_step()),
            optimizer.register_step_post_hook(lambda *_: self._after_optimizer_step()),
        ]
        if policy.uses_loss and self._timetable.num_updates < FEW_UPDATES and budget.share < 1:
            warnings.warn(
                f"the controller gets {self._timetable.num_updates} updates in this run, too few to learn from ({FEW_UPDATES} at least): "
                f"the budget is kept, but the choice is close to random. Train longer, or pass policy=trainonce.policies.FilterNorm().",
                ShortRun,
                stacklevel=3,
            )

    def step(self, closure: Callable[[], Tensor] | None = None) -> bool:
        """Go on by one training step; call it once after every optimizer step. True in the one step in which the model was cut.

        `closure` gives the loss on a batch for the controller; it is called only when the controller is due. Under
        DistributedDataParallel, wrap the model anew when this returns True.
        """
        if self._finished:
            raise PrunerError("this pruner has finished. Attach a new one to go on pruning.")
        if self._num_steps >= self._timetable.total_steps:
            raise PrunerError(
                f"the run was to have {self._timetable.total_steps} steps, this is one more. "
                f"Attach with the right total_steps, or call finish()."
            )
        if self._timetable.is_update(self._num_steps) and self._frozen is None:
            if self._policy.uses_loss:
                self._update(closure)
            self._projection.select(self._policy.penalised())
            self._floor = self._projection.mean_norms() * self._strength.floor if self._strength.floor else None
        self._num_steps += 1
        if self._frozen is None and self._num_steps >= self._timetable.settle_from:
            self._freeze(self._budget.choose(same_everywhere(self._policy.scores())))
        if self._shrinks and not self._shrunk and self._frozen is not None and self._projection.all_zero():
            return self._cut_or_go_on()
        return False

    def finish(self) -> nn.Module:
        """The small model: the one that was attached, without its wrappers, cut if it wasn't yet. The run must be over."""
        if self._finished:
            return self._model
        if self._frozen is None or not (self._shrunk or self._projection.all_zero()):
            raise PrunerError(
                f"finish() was called after {self._num_steps} of {self._timetable.total_steps} steps, before what goes was at zero. "
                f"Train to the end, or attach with the right total_steps."
            )
        if not self._shrunk:
            self._cut()
        self._finished = True
        for hook in self._hooks:
            hook.remove()
        return self._model

    @property
    def model(self) -> nn.Module:
        """The user's own module, without wrappers."""
        return self._model

    @property
    def partition(self) -> Partition:
        """What `inspect` found in the dense model."""
        return self._units.partition

    @property
    def phase(self) -> Phase:
        """Where the run is; compares equal to its name, as in `pruner.phase == "search"`."""
        if self._shrunk:
            return Phase.SMALL
        if self._frozen is not None:
            return Phase.SETTLE
        return Phase.SEARCH if self._timetable.is_searching(self._num_steps) else Phase.WARM_UP

    @property
    def shrunk(self) -> bool:
        """Whether the model has been cut."""
        return self._shrunk

    @property
    def plan(self) -> Plan | None:
        """What is cut, once that is decided."""
        return None if self._frozen is None else Plan.from_masks(self.partition, self._units.split(self._frozen))

    @property
    def masks(self) -> dict[str, Tensor]:
        """One 0 or 1 per unit of each group: what the policy would keep now, or the decision."""
        return self._units.split(self._masks())

    @property
    def alive(self) -> dict[str, tuple[int, int]]:
        """For each group, how many units stay of how many."""
        return {name: (int(mask.sum()), len(mask)) for name, mask in self.masks.items()}

    @property
    def keep_flops_now(self) -> float:
        """The share of the budgeted cost that the masks in force keep."""
        return self._budget.share_of(self._masks())

    @property
    def keep_flops_target(self) -> float:
        """The budget."""
        return self._budget.share

    @property
    def kept_because(self) -> dict[str, str]:
        """Groups that this run leaves alone, with the reason."""
        kept = {group.name: group.kept_because for group in self.partition.groups if group.kept_because is not None}
        return kept | dict(self._units.kept_here)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values that, with the model's and the optimizer's state, resume the run at this step."""
        return {
            "version": STATE_VERSION,
            "num_steps": self._num_steps,
            "total_steps": self._timetable.total_steps,
            "groups": self._fingerprint(),
            "frozen": None if self._frozen is None else self._frozen.to(torch.uint8),
            "shrunk": self._shrunk,
            "controller_loss": self.controller_loss,
            "pulled": self._projection.pulled_units,
            "floor": self._floor,
            "policy": self._policy.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; call it before the model's and the optimizer's `load_state_dict`, on the dense model: it is cut here."""
        if state.get("version") != STATE_VERSION:
            raise PrunerError(
                f"the pruner's state has version {state.get('version')!r}, this trainonce reads {STATE_VERSION}. Use the one that wrote it."
            )
        if dict(state["groups"]) != self._fingerprint() or state["total_steps"] != self._timetable.total_steps:
            raise PrunerError(
                "the pruner's state is of another model, budget or total_steps. Attach with the settings of the run it is from."
            )
        if self._shrunk:
            raise PrunerError("this model is small already. Load the state onto a pruner that is attached to the dense model.")
        self._policy.load_state_dict(state["policy"])
        self._num_steps = int(state["num_steps"])
        self.controller_loss = state["controller_loss"]
        if state["pulled"] is not None:
            self._projection.select(state["pulled"].bool())
            self._floor = state["floor"]
        if state["frozen"] is not None:
            self._freeze(state["frozen"].double())
        if state["shrunk"]:
            plan = self.plan
            assert plan is not None, "a shrunk run has a decision"
            apply_plan(self._model, plan, optimizer=self._optimizer)
            self._shrunk = True

    def _update(self, closure: Callable[[], Tensor] | None) -> None:
        if not callable(closure):
            raise PrunerError("the controller is due: call step(closure) with a function that returns the loss on a batch for it.")
        gates = self._gates
        assert gates is not None, "a policy that uses the loss has gates"

        def evaluate(masks: Tensor) -> tuple[Tensor, Tensor]:
            with untouched(self._model), gradient_exchange_paused(self._model):
                loss, gradient = gates.evaluate(closure, masks)
            return averaged(loss), averaged(gradient)

        loss = self._policy.update(evaluate)
        if loss is not None:
            self.controller_loss = loss
        elif not self._warned:
            self._warned = True
            warnings.warn(
                f"the controller's loss is not finite at step {self._num_steps}; that update is skipped, as are later ones of the kind.",
                RuntimeWarning,
                stacklevel=3,
            )

    def _before_optimizer_step(self) -> None:
        if self._pull.needs_before and self._is_pulling():
            self._projection.remember()

    def _after_optimizer_step(self) -> None:
        # Fused optimizers are called also when a GradScaler skips: they are told so, and change nothing.
        if bool(getattr(self._optimizer, "found_inf", False)):
            return
        if self._timetable.is_searching(self._num_steps) and self._frozen is None:
            self._policy.observe()
        if self._is_pulling():
            if self._frozen is None:
                self._projection.apply(self._pull, self._strength.searching, floor=self._floor)
            else:
                scale = self._strength.largest_scale(self._timetable, self._num_steps)
                self._projection.apply(self._pull, self._strength.settled, largest_scale=scale)

    def _is_pulling(self) -> bool:
        return not self._shrunk and self._num_steps >= self._timetable.shrink_from

    def _freeze(self, masks: Tensor) -> None:
        self._frozen = masks
        self._projection.select(masks == 0)

    def _cut(self) -> None:
        plan = self.plan
        assert plan is not None, "only a decision is cut"
        cut(self._model, plan, optimizer=self._optimizer)
        self._shrunk = True

    def _cut_or_go_on(self) -> bool:
        """A cut that can't be proven must not end a long run: it goes on at full size, and `finish` says why."""
        try:
            self._cut()
        except WrongPlan as error:
            self._shrinks = False
            warnings.warn(f"the model could not shrink at step {self._num_steps}: {error} Training goes on.", RuntimeWarning, stacklevel=3)
            return False
        return True

    def _masks(self) -> Tensor:
        return self._frozen if self._frozen is not None else (~self._policy.penalised()).double()

    def _search_progress(self) -> float:
        first, last = self._timetable.search_from, self._timetable.settle_from
        return min(1.0, max(0.0, (self._num_steps - first) / max(1, last - first)))

    def _fingerprint(self) -> dict[str, Any]:
        return {
            "sizes": {group.name: group.num_channels for group in self._units.groups},
            "share": self._budget.share,
            "counts": self._budget.word,
        }
