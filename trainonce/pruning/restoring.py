"""`restore` a model to the size it had, before its weights are loaded and its optimizer exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from trainonce.errors import ModelMismatchError, PlanError, PrunerError
from trainonce.execution.restoring import snapshot
from trainonce.messages.plain_text import quoted, reason_of, shown
from trainonce.pruning.attached import pruners_of
from trainonce.pruning.distributed import unwrapped_model
from trainonce.pruning.followers import Followers
from trainonce.pruning.notices import Notices
from trainonce.pruning.pruner_state import STATE_VERSION
from trainonce.pruning.restored import note_restored, restoring_plans
from trainonce.pruning.saved_run import unpacked_plan
from trainonce.pruning.settings import kind_of
from trainonce.storage.artifact.confirmation import confirm_sizes
from trainonce.structure.channels import Example
from trainonce.structure.plan import Plan
from trainonce.surgery.fitting import check_fits
from trainonce.surgery.sharding import refusal_of_shards
from trainonce.surgery.slicing import apply_plan, plans_of


def restore(
    model: nn.Module,
    state: Mapping[str, Any],
    *,
    followers: Sequence[object] = (),
    example: Example | None = None,
) -> nn.Module:
    """Cut a newly built model to the size it had in a saved run, so that its weights can be loaded.

    For trainers that load weights before they create the optimizer. Afterwards `attach` as in the first run
    and call `pruner.load_state_dict(state)`, which takes over without cutting again.

    Example: `trainonce.restore(model, checkpoint["pruner"]); model.load_state_dict(checkpoint["model"])`

    Args:
        model: The model that the run started with, newly built, without a pruner. If it was small then,
            the dense model will do, too.
        state: What `pruner.state_dict()` returned.
        followers: Averaged copies of the dense model that are cut with it, as in `attach`.
        example: An input, needed only if the sizes that the model's own code keeps can't be verified without.

    Returns:
        The model. On any error nothing is changed.
    """
    if not isinstance(model, nn.Module):
        raise PrunerError(f"model must be an nn.Module, got {kind_of(model)}. Pass the newly built model.")
    inner = unwrapped_model(model)
    if (words := refusal_of_shards(inner)) is not None:
        raise PrunerError(words)
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise PrunerError(
            "restore the model before wrapping it in DistributedDataParallel, which can't follow new shapes."
        )
    if pruners_of(inner):
        raise PrunerError(
            "this model has a pruner already. Restore before attach, or call pruner.load_state_dict instead."
        )
    if restoring_plans(inner):
        raise PrunerError("this model has been restored already. Attach, and load the pruner's state.")
    plans = _plans_in(state)
    # A run may have started with a model that was small already, and this one is newly built.
    missing = [] if plans_of(inner) else _earlier_in(state)
    if missing and not _is_whole(inner, missing[0]):
        missing = []
    following = Followers(inner, followers, Notices())
    try:
        if all_plans := [*missing, *plans]:
            check_fits(inner, all_plans[0])
            confirm_sizes(inner, all_plans, example)
    except (PlanError, ModelMismatchError) as error:
        raise PrunerError(
            f"this state is of another model, or the model has been cut already ({reason_of(error, 300)}) "
            "Restore the model that the run started with, newly built."
        ) from None
    _apply(inner, all_plans, following)
    note_restored(inner, plans)
    return model


def _apply(model: nn.Module, plans: Sequence[Plan], followers: Followers) -> None:
    if not plans:
        return
    undo = snapshot(model)
    try:
        with followers.cutting(*plans):
            for plan in plans:
                apply_plan(model, plan)
    except BaseException:
        undo()
        raise


def _plans_in(state: Any) -> list[Plan]:
    version = state.get("version") if isinstance(state, Mapping) else None
    if type(version) is not int or version != STATE_VERSION:
        raise PrunerError(
            f"this is not a pruner state of version {STATE_VERSION} ({quoted(version)}). Pass what "
            "pruner.state_dict() returned."
        )
    cuts, packed = state.get("cuts"), state.get("plans")
    if not isinstance(cuts, list) or not isinstance(packed, list | None):
        raise PrunerError(
            "the pruner's state is damaged: its cuts are not a list. Pass what state_dict() returned."
        )
    if len(cuts) != len(packed or ()):
        raise PrunerError(
            "this state was saved without its plans, by an older trainonce. Attach first, then load it into "
            "the pruner, then load the model's and the optimizer's."
        )
    return _unpacked(packed or ())


def _earlier_in(state: Mapping[str, Any]) -> list[Plan]:
    """The plans that had cut the model before its run began."""
    # Older states don't have them.
    earlier = state.get("earlier", [])
    if not isinstance(earlier, list):
        raise PrunerError(
            "the pruner's state is damaged: its earlier cuts are not a list. Pass what state_dict() returned."
        )
    return _unpacked(earlier)


def _is_whole(model: nn.Module, plan: Plan) -> bool:
    try:
        check_fits(model, plan)
    except PlanError:
        return False
    return True


def _unpacked(packed: Sequence[Any]) -> list[Plan]:
    try:
        return [unpacked_plan(part) for part in packed]
    except PlanError as error:
        raise PrunerError(
            f"the pruner's state is damaged: {shown(error, most=300)}. Pass what state_dict() returned."
        ) from None
