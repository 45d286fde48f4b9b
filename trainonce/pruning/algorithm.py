"""Auto-Train-Once on one model and one optimizer, step by step; `Pruner` is its public face."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import PlanError
from trainonce.pruning.budget import Budget
from trainonce.pruning.cuts import Cuts
from trainonce.pruning.decision import Decision
from trainonce.pruning.followers import Followers
from trainonce.pruning.gating.placement import find_gates
from trainonce.pruning.guards.frozen import Frozen, named_first
from trainonce.pruning.handover import Call, hand_over, heard_call
from trainonce.pruning.learning import Learning
from trainonce.pruning.notices import Notices
from trainonce.pruning.policies.policy import Search
from trainonce.pruning.pulling.pull_schedule import Pulling
from trainonce.pruning.restored import same_parameters
from trainonce.pruning.saved_run import SavedRun
from trainonce.pruning.settings import PruningSettings


class AutoTrainOnce:
    """The paper's algorithm 1; lines 6 and 7, the gradient and the optimizer's step, are the user's.

    - Line 8, after each optimizer step from T_w on: pull the units that are to go (`after_optimizer_step`).
    - Line 14, every few steps from T_start to T_end: CN-Update, then new masks (`advance`).
    - Line 17: once what goes is exactly zero, cut it out (`advance`, or `cut` at the end of the run).

    Different from the paper, masks only become final at T_end (`Decision`), and the model is cut in training.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        tensors: Mapping[str, nn.Parameter],
        budget: Budget,
        settings: PruningSettings,
        followers: Sequence[object] | None = None,
        dense: nn.Module | None = None,
    ) -> None:
        units, policy, timetable = budget.units, settings.policy, settings.timetable
        self.model = model
        self.optimizer = optimizer
        self.tensors = tensors
        self.budget = budget
        self.settings = settings
        self.timetable = timetable
        self.notices = Notices()
        self._policy = policy
        self._cuts_early = settings.shrink
        self.num_steps = self.first_step = 0
        self.decision = Decision.undecided(len(units))
        self.controller_loss: float | None = None
        self._learning: Learning | None = None
        # A restored model is small already; what is measured once is measured on a dense copy of it.
        self.awaits_state = dense is not None
        measured = tensors if dense is None else same_parameters(dense, tensors)
        if policy.uses_loss:
            gates = find_gates(dense or model, units, measured, units.partition.example).on_tensors(tensors)
            self._learning = Learning(model, optimizer, policy, gates, self.notices)
        self.followers = Followers(model, followers, self.notices)
        self.cuts = Cuts(model, optimizer, units, self.followers)
        self._pulling = Pulling(
            units,
            tensors,
            optimizer,
            pull=settings.pull,
            strength=settings.strength,
            timetable=timetable,
        )
        self._frozen = Frozen(tensors, (rows.tensor for rows in units.writers), optimizer)
        self._search = Search(
            units,
            measured,
            budget,
            settings.seed,
            timetable.num_updates,
            lambda: timetable.search_progress(self.num_steps),
            model,
        )
        policy.start(self._search)

    def before_optimizer_step(self) -> None:
        """Note what `after_optimizer_step` compares with."""
        if not self.is_small:
            self._frozen.before_step()
            self._pulling.before_step(self.num_steps)

    def after_optimizer_step(self) -> None:
        """Let the policy see the gradients, and pull the units that are to go."""
        # A GradScaler also calls fused optimizers on a step it skips; they are told so and change nothing.
        if bool(getattr(self.optimizer, "found_inf", False)):
            return
        if self.timetable.is_searching(self.num_steps) and not self.decision.is_final:
            self._policy.observe()
        if not self.is_small:
            self._frozen.after_step()
            held = self._search.units.written_by(self._frozen.now) if self._frozen.now else None
            self._pulling.after_step(self.num_steps, is_open=not self.decision.is_final, held=held)

    def advance(self, loss: Callable[[], Tensor] | None) -> bool:
        """Advance by one step; True if the model was cut in it."""
        self._hold_out_frozen()
        if self._is_update:
            self._update_controller(loss)
            chosen = self._policy.penalized() & self._search.available & ~self._search.required
            self._pulling.pull_gently(chosen)
        hears = self.settings.strength.hand_over and self.decision.is_due(self.timetable, self.num_steps + 1)
        call = heard_call(self.model, self.optimizer, loss) if hears else None
        self.num_steps += 1
        self._decide_if_due()
        self._hand_over(call)
        self._decide_around_frozen()
        if self.num_steps - self.first_step in (1, 10) or self.num_steps == self.decision.at:
            # Early, when little is lost, and again at a decision.
            self.followers.look()
        return self._cut_if_at_zero()

    def cut(self) -> None:
        """Cut out what was decided to go."""
        self.cuts.cut(self.decision.masks)
        self._follow()

    @property
    def masks(self) -> Tensor:
        """The decision; before it is final, what the policy would keep now."""
        if self.decision.is_final:
            return self.decision.masks
        return ((~self._policy.penalized() | self._search.required) & self._search.available).double()

    @property
    def needs_loss(self) -> bool:
        """Whether the policy learns in the next step."""
        return self._is_update and self._learning is not None

    @property
    def awaits_cut(self) -> bool:
        """Whether something was decided that is not cut out yet."""
        return self.decision.at is not None and not self.cuts.has_cut(self.decision.masks)

    @property
    def is_small(self) -> bool:
        """Whether the model has its final size."""
        return self.decision.is_final and not self.awaits_cut

    @property
    def is_ready(self) -> bool:
        """Whether the model is small, or could be cut now without changing its output."""
        return self.decision.is_final and (self.is_small or self._pulling.has_arrived())

    @property
    def stuck(self) -> dict[str, str]:
        """Parameters that hold up units that are to go, because they are frozen; with the reason."""
        return self._frozen.holding(self._search.units, self.decision.masks == 0)

    @property
    def held_groups(self) -> dict[str, str]:
        """Groups that are left alone for now because their weights are frozen, with the reason."""
        return {} if self.is_small else self._frozen.held_groups(self._search.units)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        return {
            "num_steps": self.num_steps,
            "total_steps": self.timetable.total_steps,
            "decision": self.decision.masks.to(torch.uint8),
            "decided_at": self.decision.at,
            "is_final": self.decision.is_final,
            **self.cuts.state_dict(),
            "controller_loss": self.controller_loss,
            "pulled": self._pulling.gently,
            "floor": self._pulling.floor,
            "policy": self._policy.state_dict(),
            "idle": self._frozen.state_dict(),
            "gates": None if self._learning is None else self._learning.places(self.budget.units),
        }

    def resume(self, saved: SavedRun) -> None:
        """Resume from a saved run on a dense model, which is cut to its size, or on a restored one."""
        self._policy.load_state_dict(saved.policy)
        if self._learning is not None and saved.gates is not None:
            self._learning.gate(self.budget.units, saved.gates)
        self._search = replace(self._search, tensors=self.tensors)
        self.num_steps = self.first_step = saved.num_steps
        self.controller_loss = saved.controller_loss
        self._frozen.load_state_dict(saved.idle)
        self.cuts.repeat(saved.cuts, done=self.awaits_state, is_settled=saved.is_settled)
        self.awaits_state = False
        self._decide(saved.decision)
        self._pulling.resume(saved.pulled, saved.floor)

    @property
    def _is_update(self) -> bool:
        return self.timetable.is_update(self.num_steps) and not self.decision.is_final

    def _update_controller(self, loss: Callable[[], Tensor] | None) -> None:
        if self._learning is None:
            return
        assert loss is not None, "checked before: see needs_loss"
        rows = self.cuts.moved(self._learning.rows)
        found = self._learning.update(
            loss, rows, required=self._search.required, idle=self._frozen.now, step=self.num_steps
        )
        self.controller_loss = self.controller_loss if found is None else found

    def _decide_if_due(self) -> None:
        decision = self.decision.next(
            self._search.budget, self._policy.scores, self.timetable, self.num_steps
        )
        if decision is not None:
            self._decide(decision)

    def _hand_over(self, call: Call | None) -> None:
        """Zero what was decided to go now, if others can make up for it; else it is pulled from now on."""
        masks = self.decision.masks
        if call is None or self.stuck or self.cuts.has_cut(masks) or bool(masks.all()):
            return
        if hand_over(self.model, self.cuts.next_plan(masks), call, self.tensors):
            self._pulling.zero()

    def _decide_around_frozen(self) -> None:
        """Past the deadline, keep units that are stuck in frozen weights and drop others instead."""
        stuck = self._search.required & (self.decision.masks == 0)
        if (
            not bool(stuck.any())
            or not self._pulling.is_overdue(self.num_steps)
            or self._pulling.has_arrived()
        ):
            return
        names, num_stuck = named_first(self.stuck), int(stuck.sum())
        budget = self.budget.requiring(self._search.required)
        around = self.decision.around(stuck, budget, self._policy.scores, self.num_steps)
        if around is not None:
            self._decide(around)
            self.notices.once(
                "around", f"{names} can't be trained: {num_stuck} units are kept, and others dropped instead."
            )
        else:
            self.notices.once(
                "beyond",
                f"{budget.word}={budget.share} can't be reached while {names} can't be trained: {num_stuck} "
                "units must be dropped but are not at zero. Unfreeze them until "
                "pruner.step() returns True, or finish() will fail.",
            )

    def _decide(self, decision: Decision) -> None:
        self.decision = decision
        self._follow()

    def _follow(self) -> None:
        """Tell the policy and the pull what is left, and where its rows are now."""
        units, decision = self.cuts.units, self.decision
        budget = self.budget.within(decision.masks).requiring(self._search.required)
        self._search = replace(self._search, units=units, budget=budget)
        self._policy.follow(self._search)
        self._pulling.follow(units, decision.masks, decided_at=decision.at)

    def _hold_out_frozen(self) -> None:
        """Keep units out of the search while their weights are frozen."""
        frozen = {} if self.is_small else self._frozen.lasting
        required = self._search.units.written_by(frozen)
        if torch.equal(required, self._search.required):
            return
        self._search = replace(self._search, budget=self._search.budget.requiring(required))
        self._policy.follow(self._search)
        if frozen:
            self.notices.once(
                "frozen",
                f"{named_first(frozen)} is no longer trained ({frozen[min(frozen)]}): the "
                f"{int(required.sum())} units in those weights are neither pulled nor cut until it is.",
            )

    def _cut_if_at_zero(self) -> bool:
        """Cut once the units that go are zero; True if the model is smaller now."""
        masks = self.decision.masks
        is_done = self.cuts.has_cut(masks) if self._cuts_early else self.cuts.has_cleared(masks)
        if is_done or not self._pulling.has_arrived():
            return False
        if not self._cuts_early:
            self.cuts.clear(masks)
            return False
        try:
            self.cut()
        except PlanError as error:
            # It must not end a long run, which continues at full size; `finish` says why.
            self._cuts_early = False
            self.notices.once(
                "cut", f"the model could not be cut at step {self.num_steps}: {error} Training continues."
            )
            return False
        return True
