"""The course of one run: what is learned, decided, pulled to zero and cut, step by step.

`Pruner` is its public face.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import PlanError
from trainonce.pruning.budget import Budget
from trainonce.pruning.cuts import Shrinking
from trainonce.pruning.decision import Decision
from trainonce.pruning.gating.placement import find_gates
from trainonce.pruning.guards.copies import Copies
from trainonce.pruning.guards.frozen import Frozen, named_first
from trainonce.pruning.learning import Learning
from trainonce.pruning.policies.policy import Policy, Search
from trainonce.pruning.pulling.projection import Pull
from trainonce.pruning.pulling.pull_schedule import Pulling
from trainonce.pruning.saved_run import SavedRun
from trainonce.pruning.schedule import Strength, Timetable


class Course:
    """Bound to a model and its optimizer; knows how far the run is."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        tensors: Mapping[str, nn.Parameter],
        budget: Budget,
        timetable: Timetable,
        policy: Policy,
        strength: Strength,
        pull: Pull,
        shrink: bool,
        seed: int,
    ) -> None:
        units = budget.units
        self._optimizer = optimizer
        self._budget = budget
        self._timetable = timetable
        self._policy = policy
        self._shrinks = shrink
        self._is_clear = False
        self._said: set[str] = set()
        self.num_steps = 0
        self.decision = Decision.undecided(len(units))
        self.controller_loss: float | None = None
        self._learning: Learning | None = None
        if policy.uses_loss:
            gates = find_gates(model, units, tensors, units.partition.example)
            self._learning = Learning(model, optimizer, policy, gates)
        self.shrinking = Shrinking(model, optimizer, units)
        self._pulling = Pulling(units, tensors, optimizer, pull=pull, strength=strength, timetable=timetable)
        self._frozen = Frozen(tensors, (rows.tensor for rows in units.writers), optimizer)
        self._copies = Copies(model)
        self._search = Search(
            units,
            tensors,
            budget,
            seed,
            timetable.num_updates,
            lambda: timetable.search_progress(self.num_steps),
        )
        policy.start(self._search)

    @property
    def masks(self) -> Tensor:
        """What the policy would keep now, or the decision."""
        if self.decision.is_final:
            return self.decision.masks
        return ((~self._policy.penalised() | self._search.required) & self._search.available).double()

    @property
    def waits_for_cut(self) -> bool:
        """Whether something has been decided that is not cut out yet."""
        done = self.shrinking.decisions
        return self.decision.at is not None and not (done and torch.equal(done[-1], self.decision.masks))

    @property
    def is_small(self) -> bool:
        """Whether the model has its final size."""
        return self.decision.is_final and not self.waits_for_cut

    @property
    def is_ready(self) -> bool:
        """Whether the model is small, or could be cut now without a change of its output."""
        return self.decision.is_final and (self.is_small or self._pulling.has_arrived())

    @property
    def stuck(self) -> dict[str, str]:
        """Parameters whose units are to go but can't, with the reason: they are not trained any more."""
        goes, units = self.decision.masks == 0, self._search.units
        return {
            name: reason
            for name, reason in self._frozen.now.items()
            if bool((units.written_by([name]) & goes).any())
        }

    @property
    def held_groups(self) -> dict[str, str]:
        """Groups that are left alone at the moment because they are not trained any more, with the reason."""
        frozen, units = {} if self.is_small else self._frozen.lasting, self._search.units
        return {
            units.groups[number].name: f"{name} is no longer trained ({reason})"
            for name, reason in frozen.items()
            for number in units.group_of[units.written_by([name])].unique().tolist()
        }

    def advance(self, closure: Callable[[], Tensor] | None) -> bool:
        """Go on by one step; whether the model was cut in it."""
        self._follow_frozen()
        if self.needs_closure:
            assert self._learning is not None
            assert closure is not None
            rows = self.shrinking.moved(self._learning.rows)
            required, idle = self._search.required, self._frozen.now
            loss = self._learning.update(closure, rows, required=required, idle=idle, step=self.num_steps)
            self.controller_loss = self.controller_loss if loss is None else loss
        if self._is_update:
            self._pulling.pull_gently(
                self._policy.penalised() & self._search.available & ~self._search.required
            )
        self.num_steps += 1
        self._decide_if_due()
        self._look_for_copies()
        if self._shrinks and self.waits_for_cut and self._pulling.has_arrived():
            return self._cut_or_go_on()
        if not self._shrinks and not self._is_clear and self._pulling.has_arrived():
            self.shrinking.clear(self.decision.masks)
            self._is_clear = True
        return False

    @property
    def needs_closure(self) -> bool:
        """Whether the policy learns in the step that is next."""
        return self._is_update and self._learning is not None

    def cut(self) -> None:
        """Take out what is decided to go."""
        self.shrinking.cut(self.decision.masks)
        self._follow()

    def before_optimizer_step(self) -> None:
        """Keep what is compared with afterwards."""
        if not self.is_small:
            self._frozen.before_step()
            self._pulling.before_step(self.num_steps)

    def after_optimizer_step(self) -> None:
        """Observe, and pull what is to go."""
        # Fused optimizers are called also when a GradScaler skips: they are told so, and change nothing.
        if bool(getattr(self._optimizer, "found_inf", False)):
            return
        if self._timetable.is_searching(self.num_steps) and not self.decision.is_final:
            self._policy.observe()
        if not self.is_small:
            self._frozen.after_step()
            held = self._search.units.written_by(self._frozen.now) if self._frozen.now else None
            self._pulling.after_step(self.num_steps, is_open=not self.decision.is_final, held=held)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        return {
            "num_steps": self.num_steps,
            "total_steps": self._timetable.total_steps,
            "decision": self.decision.masks.to(torch.uint8),
            "decided_at": self.decision.at,
            "is_final": self.decision.is_final,
            "cuts": [masks.to(torch.uint8) for masks in self.shrinking.decisions],
            "controller_loss": self.controller_loss,
            "pulled": self._pulling.gently,
            "floor": self._pulling.floor,
            "policy": self._policy.state_dict(),
            "idle": self._frozen.state_dict(),
        }

    def resume(self, saved: SavedRun) -> None:
        """Go on from a state, on a dense model: it is cut here."""
        self._policy.load_state_dict(saved.policy)
        self.num_steps = saved.num_steps
        self.controller_loss = saved.controller_loss
        self._frozen.load_state_dict(saved.idle)
        self.shrinking.repeat(saved.cuts)
        self._decide(saved.decision)
        self._pulling.resume(saved.pulled, saved.floor)

    @property
    def _is_update(self) -> bool:
        return self._timetable.is_update(self.num_steps) and not self.decision.is_final

    def _decide_if_due(self) -> None:
        decision = self.decision.next(
            self._search.budget, self._policy.scores, self._timetable, self.num_steps
        )
        if decision is not None:
            self._decide(decision)
        stuck = self._search.required & (self.decision.masks == 0)
        if (
            not bool(stuck.any())
            or not self._pulling.is_overdue(self.num_steps)
            or self._pulling.has_arrived()
        ):
            return
        names = named_first(self.stuck)
        budget = self._budget.requiring(self._search.required)
        around = self.decision.around(stuck, budget, self._policy.scores, self.num_steps)
        if around is not None:
            self._decide(around)
            self._say(
                "around",
                f"{int(stuck.sum())} units that were to go are kept, because {names} can't be trained; "
                "others go instead.",
            )
        else:
            self._say(
                "beyond",
                f"{budget.word}={budget.share} can't be reached while {names} can't be trained: "
                f"{int(stuck.sum())} units are to go, but "
                f"are not at zero. Unfreeze until pruner.step() returns True, else finish() will be refused.",
            )

    def _decide(self, decision: Decision) -> None:
        self.decision, self._is_clear = decision, False
        self._follow()

    def _follow(self) -> None:
        """Bring everything that looks at rows to where they stand, and to what is left."""
        units, decision = self.shrinking.units, self.decision
        budget = self._budget.within(decision.masks).requiring(self._search.required)
        self._search = replace(self._search, units=units, budget=budget)
        self._policy.follow(self._search)
        self._pulling.follow(units, decision.masks, decided_at=decision.at)

    def _follow_frozen(self) -> None:
        """What is frozen for longer is held out of the search."""
        frozen = {} if self.is_small else self._frozen.lasting
        required = self._search.units.written_by(frozen)
        if torch.equal(required, self._search.required):
            return
        self._search = replace(self._search, budget=self._search.budget.requiring(required))
        self._policy.follow(self._search)
        if frozen:
            self._say(
                "frozen",
                f"{named_first(frozen)} is no longer trained ({frozen[min(frozen)]}): the "
                f"{int(required.sum())} units that it writes "
                f"are neither pulled nor cut while that lasts.",
            )

    def _look_for_copies(self) -> None:
        """Early, so that little is lost.

        Again when the first cut is decided, for averages that were made later.
        """
        if (
            self.shrinking.plans
            or not (self.num_steps in (1, 10) or self.num_steps == self.decision.at)
            or "copies" in self._said
        ):
            return
        complaint = self._copies.complaint()
        if complaint is not None:
            self._say("copies", complaint)

    def _cut_or_go_on(self) -> bool:
        """A cut that can't be proven must not end a long run.

        It goes on at full size, and `finish` says why.
        """
        try:
            self.cut()
        except PlanError as error:
            self._shrinks = False
            self._say(
                "cut", f"the model could not shrink at step {self.num_steps}: {error} Training goes on."
            )
            return False
        return True

    def _say(self, subject: str, words: str) -> None:
        """Warn, once of each subject."""
        if subject not in self._said:
            self._said.add(subject)
            warnings.warn(words, RuntimeWarning, stacklevel=5)
