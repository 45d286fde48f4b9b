"""Whether a run can be finished: what is wrong with the model or the run, and what to do."""

from __future__ import annotations

from trainonce.execution.comparison import first_nan_buffer, first_not_finite
from trainonce.pruning.algorithm import AutoTrainOnce
from trainonce.pruning.guards.stepwatch import StepWatch
from trainonce.pruning.notices import warn_user


def refusal_to_finish(algorithm: AutoTrainOnce, watch: StepWatch) -> str | None:
    """Why the small model can't be had now; None if it can."""
    if (name := first_not_finite(algorithm.model)) is not None:
        return (
            f"{name} is not finite: training diverged, and there is no model to cut. Lower the learning "
            "rate or clip gradients, and train again; the model is as training left it."
        )
    if (name := first_nan_buffer(algorithm.model)) is not None:
        return (
            f"{name} holds NaN, and so would the small model's outputs: a batch that is not finite went "
            "through it. Fix it (batch norm: reset_running_stats(), then some batches in training "
            "mode) and call finish() again."
        )
    return None if algorithm.is_ready else _why_not_ready(algorithm, watch)


def _why_not_ready(algorithm: AutoTrainOnce, watch: StepWatch) -> str:
    when = f"finish() was called after {algorithm.num_steps} of {algorithm.timetable.total_steps} steps"
    stuck = algorithm.stuck if algorithm.decision.is_final else {}
    if stuck:
        name, reason = min(stuck.items())
        return (
            f"{when}, but {name} can't be trained ({reason}), so some dropped channels are not at zero. "
            "Unfreeze it, take one more optimizer step and call finish() again; or attach again, which "
            "keeps whatever is frozen."
        )
    if watch.is_missing:
        return f"{when}, but {watch.complaint}"
    return (
        f"{when}, before the dropped channels were at zero. Train to the end, or attach with the right "
        "total_steps."
    )


def settle(algorithm: AutoTrainOnce) -> None:
    """Make the small model one that its configuration builds, if equal widths were asked for."""
    if (words := algorithm.cuts.settle()) is not None:
        warn_user(
            f"the small model can't be built from its configuration ({words}). Save it with trainonce.save."
        )
