"""Whether a run can take over a saved state now, and if not, why; its teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainonce.errors import PrunerError
from trainonce.pruning.algorithm import AutoTrainOnce
from trainonce.pruning.guards.copies import note_teacher
from trainonce.pruning.pruner_state import check_saved_plans
from trainonce.pruning.restored import are_same_cuts, restoring_plans
from trainonce.teaching.lessons import Lessons


def check_can_load(algorithm: AutoTrainOnce, state: Mapping[str, Any]) -> None:
    """Raise PrunerError if the run has begun, or if its model was cut by other plans than the state's."""
    if algorithm.cuts.plans:
        raise PrunerError(
            "this model has been cut already. Load the state into a pruner attached to the dense model."
        )
    check_saved_plans(state, plans := algorithm.cuts.plans_for(state["cuts"]))
    if algorithm.awaits_state and not are_same_cuts(restoring_plans(algorithm.model), plans):
        raise PrunerError("this model was restored from another state. Load the one it was restored from.")
    if algorithm.num_steps > algorithm.first_step:
        raise PrunerError(
            f"this pruner has made {algorithm.num_steps} steps. Load the state right after attach, before "
            "the first step."
        )


def resume_teaching(lessons: Lessons | None, state: Mapping[str, Any]) -> None:
    """Load the teacher of a saved run, if there is one; its new weights don't make it an average."""
    if lessons is not None:
        lessons.load_state_dict(state["teacher"])
        note_teacher(lessons.model)
