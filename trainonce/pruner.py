"""Auto-Train-Once on one model and one optimizer: call `step` in your loop, `finish` with the small model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.budget import Budget
from trainonce.channels import Partition, WrongPlan
from trainonce.distributed import same_everywhere, unwrapped_model
from trainonce.lastwriters import find_gates
from trainonce.plan import Plan
from trainonce.policies.policy import Policy, Search
from trainonce.projection import Pull
from trainonce.pulling import Pulling
from trainonce.schedule import Phase, Schedule, Strength
from trainonce.shrinking import Shrinking

STATE_VERSION = 2
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
        self._shrinks = shrink
        self.schedule = schedule
        self._timetable = schedule.in_steps(total_steps)
        self._gates = find_gates(self._model, self._units, tensors, budget.units.partition.example) if policy.uses_loss else None
        self._shrinking = Shrinking(self._model, optimizer, self._units)
        self._pulling = Pulling(self._units, tensors, optimizer, pull=pull, strength=strength, timetable=self._timetable)
        self._search = Search(
            self._units, tensors, budget, seed, self._timetable.num_updates, lambda: self._timetable.search_progress(self._num_steps)
        )
        policy.start(self._search)
        self._num_steps = 0
        self._decision = torch.ones(len(self._units), dtype=torch.double)
        self._decided_at: int | None = None
        self._is_final = self._is_clear = self._finished = self._warned = False
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
        """Go on by one training step; call it once after every optimizer step. True in a step in which the model was cut.

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
        if self._timetable.is_update(self._num_steps) and not self._is_final:
            if self._policy.uses_loss:
                self._update(closure)
            self._pulling.pull_gently(self._policy.penalised() & self._search.available)
        self._num_steps += 1
        self._decide_if_due()
        if self._shrinks and self._waits_for_cut() and self._pulling.has_arrived():
            return self._cut_or_go_on()
        if not self._shrinks and not self._is_clear and self._pulling.has_arrived():
            self._shrinking.clear(self._decision)
            self._is_clear = True
        return False

    def finish(self) -> nn.Module:
        """The small model: the one that was attached, without its wrappers, cut if it wasn't yet. The run must be over."""
        if self._finished:
            return self._model
        if not self._is_final or not (self.shrunk or self._pulling.has_arrived()):
            raise PrunerError(
                f"finish() was called after {self._num_steps} of {self._timetable.total_steps} steps, before what goes was at zero. "
                f"Train to the end, or attach with the right total_steps."
            )
        if self._waits_for_cut():
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
        if self.shrunk:
            return Phase.SMALL
        if self._is_final:
            return Phase.SETTLE
        return Phase.SEARCH if self._timetable.is_searching(self._num_steps) else Phase.WARM_UP

    @property
    def shrunk(self) -> bool:
        """Whether the model has been cut to its final size."""
        return self._is_final and not self._waits_for_cut()

    @property
    def cuts(self) -> tuple[Plan, ...]:
        """The cuts of this run so far, each for the model that the one before had left."""
        return tuple(self._shrinking.plans)

    @property
    def plan(self) -> Plan | None:
        """What is cut of the dense model in all, once that is decided."""
        return self._shrinking.whole_plan(self._decision) if self._is_final else None

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
            "decision": self._decision.to(torch.uint8),
            "decided_at": self._decided_at,
            "is_final": self._is_final,
            "cuts": [masks.to(torch.uint8) for masks in self._shrinking.decisions],
            "controller_loss": self.controller_loss,
            "pulled": self._pulling.gently,
            "floor": self._pulling.floor,
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
        if self._shrinking.plans:
            raise PrunerError("this model is small already. Load the state onto a pruner that is attached to the dense model.")
        self._policy.load_state_dict(state["policy"])
        self._num_steps = int(state["num_steps"])
        self.controller_loss = state["controller_loss"]
        self._shrinking.repeat([masks.double() for masks in state["cuts"]])
        if state["decided_at"] is not None:
            self._decide(state["decision"].double(), at=int(state["decided_at"]), is_final=bool(state["is_final"]))
        if state["pulled"] is not None:
            self._pulling.resume(state["pulled"].bool(), state["floor"])

    def _update(self, closure: Callable[[], Tensor] | None) -> None:
        if not callable(closure):
            raise PrunerError("the controller is due: call step(closure) with a function that returns the loss on a batch for it.")
        assert self._gates is not None, "a policy that uses the loss has gates"
        gates = replace(self._gates, rows=self._shrinking.moved(self._gates.rows))
        loss = self._policy.update(lambda masks: gates.evaluate_everywhere(self._model, closure, masks))
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
        if not self.shrunk:
            self._pulling.before_step(self._num_steps)

    def _after_optimizer_step(self) -> None:
        # Fused optimizers are called also when a GradScaler skips: they are told so, and change nothing.
        if bool(getattr(self._optimizer, "found_inf", False)):
            return
        if self._timetable.is_searching(self._num_steps) and not self._is_final:
            self._policy.observe()
        if not self.shrunk:
            self._pulling.after_step(self._num_steps, is_open=not self._is_final)

    def _decide_if_due(self) -> None:
        if not self._is_final and self._num_steps >= self._timetable.settle_from:
            masks = self._search.budget.choose(same_everywhere(self._policy.scores()))
            self._decide(masks, at=self._timetable.settle_from, is_final=True)
        elif self._decided_at is None and self._num_steps >= self._timetable.first_cut_from:
            # Half of the way, as a factor: what the first cut and the last leave over is the same share of what was there.
            masks = self._search.budget.choose(same_everywhere(self._policy.scores()), share=self._budget.share**0.5)
            self._decide(masks, at=self._timetable.first_cut_from, is_final=False)

    def _decide(self, masks: Tensor, *, at: int, is_final: bool) -> None:
        self._decision, self._decided_at, self._is_final, self._is_clear = masks, at, is_final, False
        self._follow()

    def _follow(self) -> None:
        """Bring everything that looks at rows to where they stand, and to what is left."""
        units = self._shrinking.units
        self._search = replace(self._search, units=units, budget=self._budget.within(self._decision))
        self._policy.follow(self._search)
        self._pulling.follow(units, self._decision, decided_at=self._decided_at)

    def _waits_for_cut(self) -> bool:
        done = self._shrinking.decisions
        return self._decided_at is not None and not (done and torch.equal(done[-1], self._decision))

    def _cut(self) -> None:
        self._shrinking.cut(self._decision)
        self._follow()

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
        return self._decision if self._is_final else (~self._policy.penalised() & self._search.available).double()

    def _fingerprint(self) -> dict[str, Any]:
        sizes = {group.name: group.num_channels for group in self._units.groups}
        return {"sizes": sizes, "share": self._budget.share, "counts": self._budget.word}
