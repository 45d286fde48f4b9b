"""Torch-Pruning as its README uses it: takes a trained model and a share of FLOPs, prunes it in place.

Group magnitude, every layer by the same ratio, in small steps until the FLOPs are low enough; the classifier
is left alone. Ranking all layers together, as its benchmark for CIFAR does, can leave single channels in
early layers after a short training: it is a choice here.
"""

from __future__ import annotations

import warnings

import torch_pruning
from torch import Tensor, nn

from benchmarks.harness.flops import count_image_macs

SMALL_STEPS = 50
FAR = 1.15


def prune_to(model: nn.Module, example: Tensor, keep_flops: float) -> None:
    """Prune until at most this share of the model's multiply-adds is left."""
    step_down_to(
        magnitude_pruner(model, example), model, example, keep_flops * count_image_macs(model, example)
    )


def magnitude_pruner(
    model: nn.Module, example: Tensor, *, ranks_all_layers: bool = False
) -> torch_pruning.pruner.BasePruner:
    """Its plain pruner."""
    importance = torch_pruning.importance.GroupMagnitudeImportance(p=2)
    return torch_pruning.pruner.BasePruner(
        model, example, importance=importance, global_pruning=ranks_all_layers, **_settings(model)
    )


def sparse_pruner(
    model: nn.Module, example: Tensor, *, strength: float
) -> torch_pruning.pruner.GroupNormPruner:
    """The one with a group-sparsity regulariser.

    `update_regularizer` each epoch, `regularize(model)` after each backward pass.
    """
    importance = torch_pruning.importance.GroupMagnitudeImportance(p=2)
    return torch_pruning.pruner.GroupNormPruner(
        model, example, importance=importance, reg=strength, **_settings(model)
    )


def step_down_to(
    pruner: torch_pruning.pruner.BasePruner, model: nn.Module, example: Tensor, target_macs: float
) -> None:
    """One small step after the other.

    Near the target one group of layers after the other, so as not to take too much.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while pruner.current_step < SMALL_STEPS:
            # Counting takes longer than a small step: far from the target, only steps are counted.
            is_far = count_image_macs(model, example) > FAR * target_macs
            for group in pruner.step(interactive=True) or ():
                group.prune()
                if not is_far and count_image_macs(model, example) <= target_macs:
                    return
            if count_image_macs(model, example) <= target_macs:
                return
    raise RuntimeError(f"Torch-Pruning did not reach {target_macs:.3g} multiply-adds in {SMALL_STEPS} steps")


def _settings(model: nn.Module) -> dict:
    ignored = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return {"pruning_ratio": 1.0, "iterative_steps": SMALL_STEPS, "ignored_layers": ignored}
