"""`attach` a pruner to a model and its optimizer: settings checked, model inspected, budget known to be reachable."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import nn

from trainonce.budget import Budget, UnreachableBudget
from trainonce.channels import Example
from trainonce.distributed import safe_to_reshape, unwrapped_model, unwrapped_optimizer
from trainonce.inspection import inspect
from trainonce.policies.default import default_policy
from trainonce.policies.policy import Policy
from trainonce.projection import Proximal, Pull
from trainonce.pruner import Pruner, PrunerError
from trainonce.schedule import Schedule, Strength
from trainonce.surgery import check_owned
from trainonce.units import Units


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
    the model is cut only by `finish`.

    Example: `pruner = trainonce.attach(model, optimizer, example=images, keep_flops=0.45, total_steps=len(loader) * epochs)`.
    """
    if not isinstance(total_steps, int) or isinstance(total_steps, bool) or total_steps < 1:
        raise PrunerError(
            f"total_steps must be the number of optimizer steps of the whole run, got {total_steps!r}. Give epochs * batches."
        )
    inner, optimizer = unwrapped_model(model), unwrapped_optimizer(optimizer)
    try:
        check_owned(optimizer, inner)
    except ValueError as error:
        raise PrunerError(str(error).replace(", or none.", ".")) from None
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad}
    tensors = {name: parameter for name, parameter in inner.named_parameters() if id(parameter) in trained}
    budget = find_budget(
        inner, example=example, trained=tensors.keys(), keep_flops=keep_flops, keep_params=keep_params, keep=keep, round_to=round_to
    )
    return Pruner(
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
    units = Units.of(inspect(safe_to_reshape(model), example, keep=keep), trained)
    if keep_flops is not None:
        return Budget.of_flops(units, keep_flops, round_to)
    return Budget.of_parameters(units, keep_params or 0, round_to)
