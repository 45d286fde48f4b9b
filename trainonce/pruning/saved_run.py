"""The content of `Pruner.state_dict` as typed values, to resume from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainonce.errors import PlanError
from trainonce.pruning.decision import Decision
from trainonce.storage.artifact.bounds import takes_much_memory
from trainonce.structure.plan import Plan


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
    is_settled: bool
    """Whether the small model was made one that its configuration builds."""
    gates: Tensor | None
    """Which writers the controller's gates are on; None if it has none."""

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
            is_settled=state.get("settled") is True,
            gates=state.get("gates"),
        )


def packed_plan(plan: Plan) -> Tensor:
    """A plan as bytes in a tensor: as text it would fill the part of a checkpoint that holds small values."""
    return torch.frombuffer(bytearray(plan.to_json(), "utf-8"), dtype=torch.uint8)


def unpacked_plan(packed: Any) -> Plan:
    """The plan that `packed_plan` was given; PlanError for anything else."""
    if not isinstance(packed, Tensor) or packed.dtype is not torch.uint8 or packed.dim() != 1:
        raise PlanError("a plan is not one tensor of bytes")
    text = bytes(packed.cpu().tolist())
    if takes_much_memory(text):
        raise PlanError("a plan would take too much memory")
    try:
        return Plan.from_json(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise PlanError("a plan is not text") from None
