"""`fit`: a model and data in, the small model and everything known about it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from trainonce.pruning.method import Method
from trainonce.pruning.policies.policy import Policy
from trainonce.runs.loggers import Logger
from trainonce.runs.report.live import View
from trainonce.teaching.teacher import Teacher
from trainonce.training.arguments import (
    Means,
    Optimizer,
    check_flags,
    check_means,
    check_model,
    check_out,
    describe_config,
    started_settings,
)
from trainonce.training.audience import Audience, check_audience
from trainonce.training.loop.evaluation import Loss
from trainonce.training.loop.metrics import Metric
from trainonce.training.methods import told_method
from trainonce.training.preparation import prepare
from trainonce.training.results.outcome import Result
from trainonce.training.settings import Settings, with_changes
from trainonce.training.stages import Request, run_stages
from trainonce.training.teachers import told_teacher


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
    metric: Metric | None = None,
    optimizer: Optimizer | None = None,
    method: Method | str | None = None,
    policy: Policy | None = None,
    teacher: bool | nn.Module | Teacher | None = None,
    callbacks: Sequence[Any] = (),
    loggers: Sequence[Logger] = (),
    config: Mapping[str, Any] | None = None,
    view: View | None = None,
    quiet: bool = False,
) -> Result:
    """A small model within the budget, in eval mode: `model` trained once on `data`; and what is known of it.

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
        metric: Maps all outputs and targets of the validation data to a number, or to numbers by name; or an
            object with update, compute and reset. Default: accuracy, mean IoU, MAE and R2, or mean AP.
        optimizer: An optimizer, or a function that makes one from the parameters. Default: as in `settings`.
        method: How to prune, such as "paper". Default: as in `settings`.
        policy: Scores the channels, such as `trainonce.policies.Taylor()`. Default: as in `settings`.
        teacher: A model to distill from, or True: `model` as it starts. Default: as in `settings`.
        callbacks: Objects with methods of `trainonce.Callback`, called at turning points of the run.
        loggers: Objects such as `trainonce.loggers.Wandb()`, told the numbers of each epoch.
        config: Recorded in `config.yaml` instead of the settings.
        view: Receives the progress: an object with `show`, `say` and `close`. Default: the terminal.
        quiet: Show no progress.

    Example: `small = trainonce.fit(model, (train, validation), keep_flops=0.45, out="runs/mine").model`.
    """
    start = started_settings(settings, pretrained=pretrained, weights=weights)
    start = with_changes(start, keep_flops=keep_flops, keep_params=keep_params, epochs=epochs)
    means = Means(loss=loss, metric=metric, optimizer=optimizer, policy=policy)
    told = Audience(view=view, quiet=quiet, callbacks=callbacks, loggers=loggers)
    return run_stages(_request(model, data, start, means, told, method, teacher, out, resume, config))


def _request(
    model: Any,
    data: Any,
    settings: Settings,
    means: Means,
    audience: Audience,
    method: Any,
    teacher: Any,
    out: Any,
    resume: bool,
    config: Mapping[str, Any] | None,
) -> Request:
    """What `fit` was asked for, checked as far as it can be without reading the data."""
    settings, taught_by = told_teacher(settings, teacher)
    means = replace(means, teacher=taught_by)
    check_model(model)
    check_flags(out=out, resume=resume, quiet=audience.quiet, config=config)
    check_out(out)
    check_means(means)
    check_audience(audience)
    settings, chosen = told_method(settings, method=method, policy=means.policy)
    prepared = prepare(settings, means.policy, chosen)
    return Request(
        model=model,
        data=data,
        prepared=prepared,
        means=means,
        audience=audience,
        out=None if out is None else Path(out),
        resume=resume,
        config=describe_config(prepared.settings, config, means, chosen),
    )
