"""`attach` a pruner to a model and its optimizer, after checking the settings and the budget."""

from __future__ import annotations

import gc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainonce.errors import PlanError, PrunerError
from trainonce.messages.plain_text import reason_of
from trainonce.pruning.algorithm import AutoTrainOnce
from trainonce.pruning.attached import note_attached, pruners_of
from trainonce.pruning.budget import Budget, check_one_budget
from trainonce.pruning.distributed import safe_to_reshape, unwrapped_model, unwrapped_optimizer
from trainonce.pruning.guards.copies import note_teacher
from trainonce.pruning.guards.optimizer_state import refusal
from trainonce.pruning.method import Method
from trainonce.pruning.notices import warn_user
from trainonce.pruning.optimizers import as_one
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.pruner import Pruner
from trainonce.pruning.pulling.projection import Pull
from trainonce.pruning.restored import restoring_plans, widened
from trainonce.pruning.schedule import Schedule, Strength
from trainonce.pruning.settings import PruningSettings, kind_of
from trainonce.pruning.units import Units
from trainonce.structure.channels import Example
from trainonce.structure.families import check_uniform, with_families
from trainonce.structure.partition import Partition
from trainonce.structure.plan import Plan
from trainonce.surgery.fitting import check_fits
from trainonce.surgery.inspection import inspect
from trainonce.surgery.sharding import refusal_of_shards
from trainonce.teaching.lessons import Lessons
from trainonce.teaching.teacher import Teacher, find_teacher


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    example: Example | Partition,
    total_steps: int,
    keep_flops: float | None = None,
    keep_params: float | None = None,
    protect: Sequence[str] = (),
    streams: bool = False,
    round_to: int | None = None,
    uniform: bool | Sequence[str] = False,
    method: Method | str | None = None,
    policy: Policy | None = None,
    schedule: Schedule | None = None,
    strength: Strength | None = None,
    pull: Pull | None = None,
    shrink: bool = True,
    seed: int = 0,
    followers: Sequence[object] | None = None,
    teacher: bool | nn.Module | Teacher | None = None,
) -> Pruner:
    """A pruner that makes `model` smaller while `optimizer` trains it.

    It replaces a pruner attached to the same model before. Give one budget, keep_flops or keep_params.

    Args:
        model: The model to train and prune; DDP and torch.compile wrappers are fine.
        optimizer: What trains it, or a list (Muon and AdamW); parameters that none trains are not pruned.
        example: What the model is called with (a tensor, a tuple, a dict), or what `inspect` found with the
            same `protect` and `streams`, to save inspecting it again.
        total_steps: Optimizer steps in the whole run, `len(loader) * epochs`.
        keep_flops: Share of the model's FLOPs to keep, above 0 and at most 1.
        keep_params: Share of the model's parameters to keep, instead of keep_flops.
        protect: Modules that must keep all their channels, as patterns: `["head*", "layer4.*"]`.
        streams: Whether channels under a LayerNorm may go, such as the width of a ViT; see `inspect`.
        round_to: Make widths multiples of this; None: about 1/16 of each width, at most 16.
        uniform: Whether the same layers of repeated blocks keep equally many channels; or patterns of them.
        method: A preset for the next four, such as "paper"; None: this library's, with your changes.
        policy: How channels are chosen; None: a controller network. See `trainonce.policies`.
        schedule: When the search starts and ends, and when the model is cut; None: `Schedule()`.
        strength: How dropped channels are brought to zero; None: `Strength()`.
        pull: How they are pulled; None: `Proximal()`.
        shrink: Cut the model during training, which speeds it up; otherwise only in `finish`.
        seed: Seed of what a policy draws, such as a controller's weights and noise.
        followers: Averaged copies (EMA, SWA) to cut with the model; those of known libraries are found.
        teacher: A model to learn from, or True: a copy as it is now. `pruner.taught` gives the loss then.

    Example: `pruner = trainonce.attach(model, optimizer, example=images, keep_flops=0.45, total_steps=1000)`
    """
    chosen = PruningSettings.of(total_steps, method, policy, schedule, strength, pull, seed, shrink=shrink)
    taught_by, trained = find_teacher(teacher), _Trained.of(model, optimizer)
    others = _find_others(trained.model, trained.optimizer)
    # Policies take gradients of the cost when they start, whatever mode the caller is in.
    with torch.inference_mode(False), torch.enable_grad():
        lessons = trained.lessons(taught_by)
        budget = trained.budget(example, keep_flops, keep_params, protect, streams, round_to, uniform)
        _check_length(total_steps, budget)
        pruner = Pruner(trained.algorithm(budget, chosen, followers), lessons)
    return _in_place_of(others, pruner)


@dataclass(frozen=True, slots=True, eq=False)
class _Trained:
    """A model and its optimizers without their wrappers."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    tensors: Mapping[str, nn.Parameter]
    """The parameters that are trained."""

    dense: nn.Module | None
    """A copy of a restored model as it was before its cuts; None for a model that is whole."""

    @classmethod
    def of(cls, model: nn.Module, optimizer: Any) -> _Trained:
        """PrunerError if the model can't be cut with these optimizers."""
        inner, joint = _checked(model, optimizer)
        trained = {id(part) for group in joint.param_groups for part in group["params"] if part.requires_grad}
        plans = restoring_plans(inner)
        return cls(
            inner,
            joint,
            {name: parameter for name, parameter in inner.named_parameters() if id(parameter) in trained},
            widened(inner, plans) if plans else None,
        )

    def lessons(self, teacher: Teacher | None) -> Lessons | None:
        """What the model is taught, by itself as it was before any cut or by another."""
        if teacher is None:
            return None
        found = Lessons(teacher, self.dense or self.model)
        note_teacher(found.model)
        return found

    def budget(
        self,
        example: Example | Partition,
        keep_flops: float | None,
        keep_params: float | None,
        protect: Sequence[str],
        streams: bool,
        round_to: int | None,
        uniform: bool | Sequence[str],
    ) -> Budget:
        """What the dense model may cost."""
        return find_budget(
            self.dense or self.model,
            example=example,
            trained=self.tensors.keys(),
            keep_flops=keep_flops,
            keep_params=keep_params,
            protect=protect,
            streams=streams,
            round_to=round_to,
            uniform=uniform,
        )

    def algorithm(
        self, budget: Budget, settings: PruningSettings, followers: Sequence[object] | None
    ) -> AutoTrainOnce:
        """What prunes it."""
        return AutoTrainOnce(
            self.model,
            self.optimizer,
            tensors=self.tensors,
            budget=budget,
            settings=settings,
            followers=followers,
            dense=self.dense,
        )


def find_budget(
    model: nn.Module,
    *,
    example: Example | Partition,
    trained: Collection[str],
    keep_flops: float | None,
    keep_params: float | None,
    protect: Sequence[str],
    streams: bool = False,
    round_to: int | None,
    uniform: bool | Sequence[str] = False,
) -> Budget:
    """The budget of a model whose `trained` parameters an optimizer has; the rest as in `attach`.

    BudgetError if the model can't get that small.
    """
    # Before the model is inspected, which takes a while.
    check_one_budget(keep_flops, keep_params)
    check_uniform(uniform)
    if isinstance(example, Partition):
        _check_partition(model, example)
    else:
        example = inspect(safe_to_reshape(model), example, protect=protect, streams=streams)
    units = Units.of(with_families(example, uniform), trained)
    if keep_flops is not None:
        return Budget.of_flops(units, keep_flops, round_to)
    return Budget.of_parameters(units, keep_params or 0, round_to)


def _checked(model: nn.Module, optimizer: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Model and optimizers without their wrappers; PrunerError if the one can't be cut with the others."""
    if not isinstance(model, nn.Module):
        raise PrunerError(
            f"model must be an nn.Module, got {kind_of(model)}. Pass the model that the optimizer trains."
        )
    model = unwrapped_model(model)
    if (words := refusal_of_shards(model)) is not None:
        raise PrunerError(words)
    several = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    optimizers = [unwrapped_optimizer(member) for member in several]
    if not optimizers:
        raise PrunerError("the list of optimizers is empty. Pass those that train this model.")
    for member in optimizers:
        _check_optimizer(model, member)
    held = [id(part) for member in optimizers for group in member.param_groups for part in group["params"]]
    if len(set(held)) < len(held) and len(optimizers) > 1:
        raise PrunerError(
            "two of the optimizers train the same parameter. Give each parameter to one of them only."
        )
    return model, as_one(optimizers)


def _check_optimizer(model: nn.Module, optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise PrunerError(
            f"optimizer must be a torch.optim.Optimizer, got {kind_of(optimizer)}. Pass the one that trains "
            "this model."
        )
    if _parameters_of(optimizer).isdisjoint(id(parameter) for parameter in model.parameters()):
        raise PrunerError(
            f"this {type(optimizer).__name__} trains none of the model's parameters. Pass the optimizer that "
            "trains this model."
        )
    if (words := refusal(optimizer)) is not None:
        raise PrunerError(words)


def _check_partition(model: nn.Module, partition: Partition) -> None:
    """Raise PrunerError if a partition is of a model with other tensors."""
    try:
        check_fits(model, Plan.from_masks(partition, {}))
    except PlanError as error:
        raise PrunerError(
            f"example is a Partition of another model ({reason_of(error, 300)}) Pass what "
            "trainonce.inspect found on this model, or an example."
        ) from None


def _check_length(total_steps: int, budget: Budget) -> None:
    if total_steps == 1 and budget.share < 1:
        raise PrunerError(
            "a run of one optimizer step (total_steps=1) can't make a model smaller: channels must be pulled "
            "to zero before they are cut. Train longer: more epochs, or smaller batches."
        )


def _find_others(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Pruner]:
    """Pruners of the same model, which the new one replaces.

    PrunerError if one of them works on other parameters of it.
    """
    mine = _parameters_of(optimizer)
    if any(mine.isdisjoint(_parameters_of(as_one(other.optimizers))) for other in pruners_of(model)):
        # It may be from a run that is over and only not collected yet.
        gc.collect()
    others = pruners_of(model)
    for other in others:
        if mine.isdisjoint(_parameters_of(as_one(other.optimizers))):
            raise PrunerError(
                f"this model has a pruner on another optimizer ({type(other.optimizer).__name__}) that "
                "trains other parameters. Pass both optimizers to one attach, as a list, or call detach() on "
                "that pruner first."
            )
    return others


def _parameters_of(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _in_place_of(others: list[Pruner], pruner: Pruner) -> Pruner:
    """The pruner, with the others detached; a warning if one of them had begun: what it learned is lost."""
    for other in others:
        other.detach()
        if other.num_steps:
            cut = (
                ", which had cut the model already: the new budget is a share of what is left"
                if other.cuts
                else ""
            )
            warn_user(
                f"this pruner replaces one that had made {other.num_steps} steps{cut}. Its masks are lost; "
                "the model is unchanged."
            )
    note_attached(pruner)
    return pruner
