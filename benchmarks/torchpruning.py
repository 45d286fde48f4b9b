"""Torch-Pruning as its own CIFAR benchmark uses it: takes a trained model and a share of FLOPs, prunes it in place.

Group magnitude, all layers ranked together, in 400 small steps until the FLOPs are low enough; the classifier is left alone.
"""

from __future__ import annotations

import warnings

import torch_pruning
from torch import Tensor, nn

from benchmarks.flops import count_image_macs

SMALL_STEPS = 400


def prune_to(model: nn.Module, example: Tensor, keep_flops: float) -> None:
    """Prune until at most this share of the model's multiply-adds is left."""
    pruner = magnitude_pruner(model, example)
    step_down_to(pruner, model, example, keep_flops * count_image_macs(model, example))


def magnitude_pruner(model: nn.Module, example: Tensor) -> torch_pruning.pruner.BasePruner:
    """Its plain pruner."""
    return torch_pruning.pruner.BasePruner(
        model, example, importance=torch_pruning.importance.GroupMagnitudeImportance(p=2), **_like(model)
    )


def sparse_pruner(model: nn.Module, example: Tensor, *, strength: float) -> torch_pruning.pruner.GroupNormPruner:
    """The one with a group-sparsity regulariser: `update_regularizer` each epoch, `regularize(model)` after each backward pass."""
    return torch_pruning.pruner.GroupNormPruner(
        model, example, importance=torch_pruning.importance.GroupMagnitudeImportance(p=2), reg=strength, **_like(model)
    )


def step_down_to(pruner: torch_pruning.pruner.BasePruner, model: nn.Module, example: Tensor, target_macs: float) -> None:
    """One small step after the other; a step that takes nothing more ends it with an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while pruner.current_step < SMALL_STEPS:
            macs = count_image_macs(model, example)
            if macs <= target_macs:
                return
            # Counting takes longer than a small step: far from the target, count seldom.
            for _ in range(8 if macs > 1.15 * target_macs else 1):
                pruner.step()
    if count_image_macs(model, example) > target_macs:
        raise RuntimeError(f"Torch-Pruning did not reach {target_macs:.3g} multiply-adds in {SMALL_STEPS} steps")


def _like(model: nn.Module) -> dict:
    ignored = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return {"global_pruning": True, "pruning_ratio": 1.0, "iterative_steps": SMALL_STEPS, "ignored_layers": ignored}
