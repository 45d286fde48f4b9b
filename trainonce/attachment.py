"""`attach` a pruner to a model and its optimizer: settings checked, model inspected, budget known to be reachable."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Collection, Sequence
from weakref import WeakSet

import torch
from torch import nn

from trainonce.budget import Budget, UnreachableBudget, check_share
from trainonce.channels import Example
from trainonce.distributed import safe_to_reshape, unwrapped_model, unwrapped_optimizer
from trainonce.inspection import inspect
from trainonce.optimizer_state import refusal
from trainonce.policies.default import default_policy
from trainonce.policies.policy import Policy
from trainonce.projection import Proximal, Pull
from trainonce.pruner import Pruner, PrunerError
from trainonce.schedule import Schedule, Strength
from trainonce.surgery import check_owned
from trainonce.units import Units

_PRUNERS: WeakSet[Pruner] = WeakSet()
"""All that were attached and are alive."""


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    example: Example,
    total_steps: int,
    keep_flops: float | None = None,
    keep_params: float | None = None,
    keep: Sequence[str] = (),
    round_to: int | None = None,
    policy: Policy | None = None,
    schedule: Schedule | None = None,
    strength: Strength | None = None,
    pull: Pull | None = None,
    shrink: bool = True,
    seed: int = 0,
) -> Pruner:
    """A pruner that makes `model` smaller while `optimizer` trains it.

    Give one budget: `keep_flops` or `keep_params`, the share of the whole model that stays. `keep` names modules to leave alone,
    `round_to` the number that widths should be multiples of (None: a sixteenth of the layer, at most 16). With `shrink=False`
    the model is cut only by `finish`. A pruner that was attached to the same model before is detached.

    Example: `pruner = trainonce.attach(model, optimizer, example=images, keep_flops=0.45, total_steps=len(loader) * epochs)`.
    """
    _check_settings(total_steps, policy, schedule, strength, pull)
    if not isinstance(model, nn.Module):
        raise PrunerError(f"model must be an nn.Module, got {_kind(model)}. Give the model that the optimizer trains.")
    inner, optimizer = unwrapped_model(model), unwrapped_optimizer(optimizer)
    try:
        check_owned(optimizer, inner)
    except ValueError as error:
        raise PrunerError(str(error).replace(", or none.", ".")) from None
    if (words := refusal(optimizer)) is not None:
        raise PrunerError(words)
    others = _find_others(inner, optimizer)
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad}
    tensors = {name: parameter for name, parameter in inner.named_parameters() if id(parameter) in trained}
    # Policies take gradients of the cost when they start, whatever mode the caller is in.
    with torch.inference_mode(False), torch.enable_grad():
        budget = find_budget(
            inner, example=example, trained=tensors.keys(), keep_flops=keep_flops, keep_params=keep_params, keep=keep, round_to=round_to
        )
        _check_length(total_steps, budget)
        pruner = Pruner(
            model,
            optimizer,
            tensors=tensors,
            budget=budget,
            total_steps=total_steps,
            policy=policy or default_policy(),
            schedule=schedule or Schedule(),
            strength=strength or Strength(),
            pull=pull or Proximal(),
            shrink=shrink,
            seed=seed,
        )
    _replace(others, pruner)
    return pruner


def find_budget(
    model: nn.Module,
    *,
    example: Example,
    trained: Collection[str],
    keep_flops: float | None,
    keep_params: float | None,
    keep: Sequence[str],
    round_to: int | None,
) -> Budget:
    """The budget of a model whose `trained` parameters an optimizer has; UnreachableBudget if the model can't get as small."""
    if (keep_flops is None) == (keep_params is None):
        raise UnreachableBudget("give one budget, keep_flops or keep_params. keep_flops=0.45 keeps 45 % of the model's FLOPs.")
    # Before the model is inspected, which takes a while.
    check_share("keep_params" if keep_flops is None else "keep_flops", keep_params if keep_flops is None else keep_flops)
    units = Units.of(inspect(safe_to_reshape(model), example, keep=keep), trained)
    if keep_flops is not None:
        return Budget.of_flops(units, keep_flops, round_to)
    return Budget.of_parameters(units, keep_params or 0, round_to)


def _check_settings(total_steps: object, policy: object, schedule: object, strength: object, pull: object) -> None:
    if not isinstance(total_steps, int) or isinstance(total_steps, bool) or total_steps < 1:
        raise PrunerError(
            f"total_steps must be the number of optimizer steps of the whole run, got {total_steps!r}. Give epochs * batches."
        )
    if policy is not None and not isinstance(policy, Policy):
        raise PrunerError(f"policy must be an object such as trainonce.policies.FilterNorm(), got {_kind(policy)}.")
    if schedule is not None and not isinstance(schedule, Schedule):
        raise PrunerError(f"schedule must be a trainonce.Schedule, got {_kind(schedule)}. Schedule.paper() is the paper's.")
    if strength is not None and not isinstance(strength, Strength):
        raise PrunerError(f"strength must be a trainonce.Strength, got {_kind(strength)}. Strength.constant(10) is the paper's.")
    if pull is not None and (isinstance(pull, type) or not callable(getattr(pull, "pulled", None))):
        raise PrunerError(f"pull must be an object such as trainonce.Proximal() or trainonce.HalfSpace(), got {_kind(pull)}.")


def _check_length(total_steps: int, budget: Budget) -> None:
    if total_steps == 1 and budget.share < 1:
        raise PrunerError(
            "a run of one optimizer step (total_steps=1) can't make a model smaller: what is to go must be pulled to zero first. "
            "Train longer: more epochs, or smaller batches."
        )


def _kind(thing: object) -> str:
    return f"the class {thing.__name__}; write {thing.__name__}()" if isinstance(thing, type) else type(thing).__name__


def _find_others(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Pruner]:
    """Pruners of the same model, which the new one takes the place of; refused if they are on another part of its parameters."""
    mine = _numbers(optimizer)
    if any(mine.isdisjoint(_numbers(other.optimizer)) for other in _living(model)):
        # Perhaps of a run that is over, and only not collected yet.
        gc.collect()
    others = _living(model)
    for other in others:
        if mine.isdisjoint(_numbers(other.optimizer)):
            raise PrunerError(
                f"this model has a pruner on another optimizer ({type(other.optimizer).__name__}), which trains other parameters; one "
                f"pruner works with one optimizer. Give one optimizer all parameters, or call detach() on that pruner first."
            )
    return others


def _living(model: nn.Module) -> list[Pruner]:
    """The pruners in force on parameters of a model; those of other models that the same optimizer trains are none."""
    own = {id(parameter) for parameter in model.parameters()}
    return [pruner for pruner in _PRUNERS if pruner.is_attached and any(id(parameter) in own for parameter in pruner.model.parameters())]


def _numbers(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _replace(others: list[Pruner], pruner: Pruner) -> None:
    """The new pruner in the place of others; said if they had begun, because what they have learned is lost."""
    for other in others:
        other.detach()
        if other.num_steps:
            cut = ", which had cut the model already: the new budget is a share of what is left" if other.cuts else ""
            warnings.warn(
                f"this pruner replaces one that had made {other.num_steps} steps{cut}. Its masks are lost; the model is as it was.",
                RuntimeWarning,
                stacklevel=3,
            )
    _PRUNERS.add(pruner)
