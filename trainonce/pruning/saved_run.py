"""The content of `Pruner.state_dict` as typed values, to resume from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainonce.pruning.decision import Decision


@dataclass(frozen=True, slots=True, eq=False)
class SavedRun:
    """The state of a run when it was saved."""

    num_steps: int
    decision: Decision
    cuts: list[Tensor]
    controller_loss: float | None
    pulled: Tensor | None
    floor: Tensor | None
    policy: Mapping[str, Any]
    idle: Mapping[str, int]

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> SavedRun:
        """The run in a state that `check_pruner_state` has accepted."""
        at = state["decided_at"]
        return cls(
            num_steps=int(state["num_steps"]),
            decision=Decision(
                state["decision"].double(), None if at is None else int(at), is_final=bool(state["is_final"])
            ),
            cuts=[masks.double() for masks in state["cuts"]],
            controller_loss=None if state["controller_loss"] is None else float(state["controller_loss"]),
            pulled=None if state["pulled"] is None else state["pulled"].bool(),
            floor=None if state["floor"] is None else state["floor"].clone(),
            policy=state["policy"],
            # Older states don't have it.
            idle=dict(state.get("idle", {})),
        )
