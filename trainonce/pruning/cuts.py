"""The cuts of one run: decisions about units of the dense model, carried out on the model as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.execution.restoring import snapshot
from trainonce.pruning.followers import Followers
from trainonce.pruning.optimizers import members_of
from trainonce.pruning.saved_run import packed_plan
from trainonce.pruning.units import Rows, Units
from trainonce.structure.plan import Plan
from trainonce.structure.succession import plan_after
from trainonce.surgery.inspection import shrink
from trainonce.surgery.norms import folded
from trainonce.surgery.settings import refusal_of_settings
from trainonce.surgery.settling import scales_of, settle
from trainonce.surgery.slicing import apply_plan, plans_of


class Cuts:
    """Cuts a model and its optimizer's state; units keep the numbers they had in the dense model."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, units: Units, followers: Followers
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._followers = followers
        self._dense = units
        self._cleared: Tensor | None = None
        self._is_settled = False
        self.decisions: list[Tensor] = []
        """The masks of each cut so far, each within the one before."""
        self.plans: list[Plan] = []
        """The same cuts as plans, each for the model that the one before left."""

    @property
    def units(self) -> Units:
        """The units at their current positions."""
        return reduce(Units.after, self.plans, self._dense)

    def moved(self, rows: Sequence[Rows]) -> tuple[Rows, ...]:
        """Rows of the dense model at their current positions."""
        return tuple(reduce(Rows.after, self.plans, part) for part in rows)

    def whole_plan(self, masks: Tensor) -> Plan:
        """A decision as a plan for the dense model."""
        return Plan.from_masks(self._dense.partition, self._dense.split(masks))

    def has_cut(self, masks: Tensor) -> bool:
        """Whether the last cut was this decision."""
        return bool(self.decisions) and torch.equal(self.decisions[-1], masks)

    def has_cleared(self, masks: Tensor) -> bool:
        """Whether the last call of `clear` was with this decision."""
        return self._cleared is not None and torch.equal(self._cleared, masks)

    def state_dict(self) -> dict[str, Any]:
        """The cuts of this run, and the plans that had cut the model before it, if any."""
        applied = plans_of(self._model)
        earlier = [packed_plan(plan) for plan in applied[: len(applied) - len(self.plans)]]
        settled = {"settled": True} if self._is_settled else {}
        return {
            **settled,
            "cuts": [masks.to(torch.uint8) for masks in self.decisions],
            "plans": [packed_plan(plan) for plan in self.plans],
            **({"earlier": earlier} if earlier else {}),
        }

    def cut(self, masks: Tensor) -> None:
        """Make the model, the optimizer's state and the followers smaller, proven on the example.

        PlanError, or PrunerError for a follower that can't be cut, leaves everything as it was.
        """
        plan = self.next_plan(masks)
        with self._followers.cutting(plan):
            shrink(self._model, plan, optimizer=members_of(self._optimizer))
        self._note(masks, plan)

    @torch.no_grad()
    def clear(self, masks: Tensor) -> None:
        """Instead of cutting, zero the weights that read dropped units: norms become the small model's.

        Dropped units output zero, so neither the model's output nor any gradient changes.
        """
        parameters = dict(self._model.named_parameters())
        for axis_cut in self.whole_plan(masks).cuts:
            parameter = parameters.get(axis_cut.tensor)
            if parameter is None:
                continue
            gone = torch.ones(parameter.shape[axis_cut.axis], dtype=torch.bool, device=parameter.device)
            gone[list(axis_cut.kept)] = False
            positions = gone.nonzero().flatten()
            state = [
                item for item in self._optimizer.state.get(parameter, {}).values() if isinstance(item, Tensor)
            ]
            for tensor in (parameter.data, *(item for item in state if item.shape == parameter.shape)):
                tensor.index_fill_(axis_cut.axis, positions, 0)
        self._cleared = masks

    def settle(self, *, is_checked: bool = True) -> str | None:
        """Make the small model one that its configuration builds.

        Why that can't be, and then it is as before; None if all is well.

        Without a check it is taken from a run that has done so.
        """
        changes = self.whole_plan(self.decisions[-1]).settings if self.decisions else ()
        if self._is_settled or not changes:
            configuration = self._dense.partition.configuration
            is_asked = configuration is not None and bool(configuration.settings)
            return "its widths differ" if is_asked and self.decisions and not self._is_settled else None
        undo, scales = snapshot(self._model), scales_of(self._model)
        settle(self._model, changes)
        example = self._dense.partition.example
        if is_checked and (words := refusal_of_settings(self._model, example)) is not None:
            undo()
            return words
        self._followers.settle(changes, scales)
        self._is_settled = True
        self.plans = [replace(plan, norms=folded(plan.norms)) for plan in self.plans]
        return None

    def repeat(self, decisions: Sequence[Tensor], *, done: bool = False, is_settled: bool = False) -> None:
        """Repeat the cuts of another run on the dense model; only note them if they are `done`."""
        plans = [replace(plan, settings=()) for plan in self.plans_for(decisions)]
        if plans and not done:
            with self._followers.cutting(*plans):
                for plan in plans:
                    apply_plan(self._model, plan, optimizers=members_of(self._optimizer))
        for masks, plan in zip(decisions, plans, strict=True):
            self._note(masks, plan)
        if is_settled:
            self.settle(is_checked=False)

    def plans_for(self, decisions: Sequence[Tensor]) -> list[Plan]:
        """Decisions about the dense model as plans, each for the model that the one before leaves."""
        wholes = [self.whole_plan(masks) for masks in decisions]
        return [*wholes[:1], *(plan_after(before, plan) for before, plan in pairwise(wholes))]

    def next_plan(self, masks: Tensor) -> Plan:
        """A decision as a plan for the model as it is now."""
        # While it is trained the model isn't yet what its configuration would build.
        return replace(self.plans_for([*self.decisions[-1:], masks])[-1], settings=())

    def _note(self, masks: Tensor, plan: Plan) -> None:
        self.decisions.append(masks)
        self.plans.append(plan)
