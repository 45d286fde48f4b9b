"""An update of the policy from the user's loss, with gradients and buffers left as they were."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from trainonce.pruning.gating.gates import Gates, gradients_aside
from trainonce.pruning.gating.placement import gates_at, places_of
from trainonce.pruning.notices import Notices
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.units import Rows, Units


class Learning:
    """Updates a policy with the loss of one model under its masks."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: Policy,
        gates: Gates,
        notices: Notices,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._policy = policy
        self._gates = gates
        self._notices = notices

    @property
    def rows(self) -> tuple[Rows, ...]:
        """The gated rows of the dense model."""
        return self._gates.rows

    def places(self, units: Units) -> Tensor:
        """Which writers of the dense model are gated, for a state."""
        return places_of(self._gates, units).to(torch.uint8)

    def gate(self, units: Units, places_WG: Tensor) -> None:
        """Gate these writers: what was found in a run's first weights stays, whatever a resumed run found."""
        self._gates = gates_at(places_WG.bool(), units, self._gates.tensors)

    def update(
        self,
        closure: Callable[[], Tensor],
        rows: tuple[Rows, ...],
        *,
        required: Tensor,
        idle: Collection[str],
        step: int,
    ) -> float | None:
        """Update the policy once, and return its loss; None if the update was skipped.

        Args:
            closure: Returns the loss on a batch.
            rows: Where the gates are now.
            required: Units whose gates stay open: one boolean each.
            idle: Parameters without a gradient. If they are all that is gated, there is nothing to learn.
            step: The step of the run, for messages.
        """
        free = [part.where(~required[part.units]) for part in rows]
        gates = replace(self._gates, rows=tuple(part for part in free if len(part.units)))
        if all(part.tensor in idle for part in gates.rows):
            return None
        with gradients_aside(parameters_of(self._model, self._optimizer)) as watched:
            loss = self._policy.update(
                lambda masks: gates.evaluate_everywhere(self._model, watched(closure), masks)
            )
        if loss is None:
            self._notices.once(
                "not finite",
                f"the controller's loss is not finite at step {step}; this update is skipped, and so are "
                "later ones like it.",
            )
        return loss


def parameters_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    """The model's, and others in the optimizer, such as those of a loss with weights."""
    own = {id(parameter): parameter for parameter in model.parameters()}
    others = {id(parameter): parameter for group in optimizer.param_groups for parameter in group["params"]}
    yield from (own | others).values()
