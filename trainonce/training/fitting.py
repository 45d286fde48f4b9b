"""`fit`: a model and data in, the small model and everything known about it out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from trainonce.pruning.method import Method
from trainonce.pruning.policies.policy import Policy
from trainonce.runs.report.live import View
from trainonce.training.arguments import (
    Optimizer,
    check_arguments,
    check_flags,
    check_model,
    describe_config,
    started_settings,
)
from trainonce.training.loop.evaluation import Loss
from trainonce.training.methods import told_method
from trainonce.training.preparation import prepare
from trainonce.training.results.outcome import Result
from trainonce.training.settings import Settings, with_changes
from trainonce.training.stages import Request, run_stages


def fit(
    model: nn.Module,
    data: Any,
    *,
    keep_flops: float | None = None,
    keep_params: float | None = None,
    epochs: int | None = None,
    pretrained: bool = False,
    weights: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    settings: Settings | None = None,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    method: Method | str | None = None,
    policy: Policy | None = None,
    config: Mapping[str, Any] | None = None,
    view: View | None = None,
    quiet: bool = False,
) -> Result:
    """Train `model` once on `data` and return a small model within the budget.

    Args:
        model: The model to train. It is changed in place.
        data: A pair (training, validation), each a pair of tensors, a Dataset or a DataLoader.
        keep_flops: Fraction of the model's FLOPs that the small model may use; 1 trains the dense model.
        keep_params: Fraction of its parameters. Pass this or `keep_flops`, here or in `settings`.
        epochs: Passes over the training data.
        pretrained: The model has pretrained weights: use the defaults of fine-tuning. Or in `settings`.
        weights: A file of weights to start from, also with the defaults of fine-tuning. Or in `settings`.
        out: Folder for checkpoints, metrics, the small model and the report. None writes nothing.
        resume: Continue the interrupted run in `out`, or start it if there is none.
        settings: Everything else about the run. `keep_flops`, `keep_params` and `epochs` override it.
        loss: Maps the model's output and the targets to the mean loss. Default: cross-entropy.
        optimizer: An optimizer, or a function that makes one from the parameters. Each parameter group
            keeps its own learning rate, scaled by the schedule. Default: the one named in `settings`.
        method: How to prune, such as "paper". Default: as in `settings`.
        policy: Scores the channels, such as `trainonce.policies.Taylor()`. Default: as in `settings`.
        config: Recorded in `config.yaml` instead of the settings.
        view: Receives the progress: an object with `show`, `say` and `close`. Default: the terminal.
        quiet: Show no progress.

    Returns:
        The small model in eval mode, one record per epoch, and the report.

    Example: `small = trainonce.fit(model, (train, validation), keep_flops=0.45, out="runs/mine").model`.
    """
    check_model(model)
    check_flags(out=out, resume=resume, quiet=quiet, config=config)
    check_arguments(out=out, settings=settings, loss=loss, policy=policy, view=view, quiet=quiet)
    start = started_settings(settings, pretrained=pretrained, weights=weights)
    start = with_changes(start, keep_flops=keep_flops, keep_params=keep_params, epochs=epochs)
    start, chosen = told_method(start, method=method, policy=policy)
    prepared = prepare(start, policy, chosen)
    config = describe_config(prepared.settings, config, optimizer=optimizer, policy=policy, method=chosen)
    as_given: dict[str, Any] = {"resume": resume, "loss": loss, "optimizer": optimizer}
    as_given |= {"out": None if out is None else Path(out), "view": view, "quiet": quiet}
    return run_stages(Request(model=model, data=data, prepared=prepared, config=config, **as_given))
