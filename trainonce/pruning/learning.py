"""What the user's closure tells a policy.

Its loss on masked models, with every gradient and buffer left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from trainonce.pruning.gating.gates import Gates, gradients_aside
from trainonce.pruning.notices import Notices
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.units import Rows


class Learning:
    """Bound to a model, its optimizer and the policy that learns."""

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

    def update(
        self,
        closure: Callable[[], Tensor],
        rows: tuple[Rows, ...],
        *,
        required: Tensor,
        idle: Collection[str],
        step: int,
    ) -> float | None:
        """Let the policy learn with gates on these rows, those of `required` units open.

        Its loss, None if there was none.

        Where all gated parameters are `idle`, the loss has no gradient for any of them, and there is nothing
        to learn.
        """
        free = [part.where(~required[part.units]) for part in rows]
        gates = replace(self._gates, rows=tuple(part for part in free if len(part.units)))
        if all(part.tensor in idle for part in gates.rows):
            return None
        with gradients_aside(self._parameters()) as watched:
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

    def _parameters(self) -> Iterator[nn.Parameter]:
        """The model's, and those that the optimizer has of others, such as a loss with weights."""
        own = {id(parameter): parameter for parameter in self._model.parameters()}
        others = {
            id(parameter): parameter
            for group in self._optimizer.param_groups
            for parameter in group["params"]
        }
        yield from (own | others).values()
