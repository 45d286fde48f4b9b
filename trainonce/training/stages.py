"""The stages of a run: set up, train, write the small model, report."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import SettingError
from trainonce.execution.forward import call_model
from trainonce.execution.logits import logits_of
from trainonce.execution.restoring import in_eval_mode
from trainonce.messages.plain_text import in_one_line
from trainonce.pruning.distributed import unwrapped_model
from trainonce.pruning.pruner import ShortRunWarning
from trainonce.runs.environment import describe_environment
from trainonce.runs.report.live import NullView, View
from trainonce.runs.report.views import choose_view
from trainonce.structure.channels import Example
from trainonce.structure.partition import Partition
from trainonce.training.arguments import DEFAULT_MEANS, Means, make_optimizer, settle
from trainonce.training.audience import NOBODY, Audience, Hearers, named_loggers
from trainonce.training.batches.named import as_pairs
from trainonce.training.batches.sources import Source, first_batch, split_data
from trainonce.training.loop.evaluation import CrossEntropy, Measuring, Scores, evaluate
from trainonce.training.loop.learning_rate import Rates
from trainonce.training.loop.mixing import Mixing
from trainonce.training.loop.objective import Objective
from trainonce.training.loop.processes import moved
from trainonce.training.loop.signals import StopFlag
from trainonce.training.loop.surroundings import Surroundings, surrounded
from trainonce.training.loop.trainer import Trainer
from trainonce.training.origin import Origin, describe_start, find_origin
from trainonce.training.preparation import Prepared
from trainonce.training.results.announcement import describe_data, few_updates_line, first_lines
from trainonce.training.results.closing import make_report, write_page
from trainonce.training.results.outcome import Result, describe_model, keep_copy, note_data, one_sample
from trainonce.training.session import Session
from trainonce.training.settings import Settings
from trainonce.training.teachers import check_start, lessons_for, teacher_line
from trainonce.zoo.artifacts import note_name


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Request:
    """What to train, on what, and where to write it."""

    model: nn.Module
    data: Any
    prepared: Prepared
    config: Mapping[str, Any]
    """Recorded in `config.yaml`, next to the batch size and learning rate that were used."""
    out: Path | None = None
    resume: bool = False
    means: Means = DEFAULT_MEANS
    audience: Audience = NOBODY
    origin: Origin | None = None
    """Where the model's weights come from, if that was found already."""
    partition: Partition | None = None
    """What `inspect` found on this model, if it was inspected already."""


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """A request with its model on the device, its data opened and its settings final."""

    request: Request
    model: nn.Module
    optimizer: torch.optim.Optimizer
    settings: Settings
    origin: Origin
    train: Source
    validation: Source
    where: Surroundings


def run_stages(request: Request) -> Result:
    """Train to the end, or from where an earlier run in the same folder stopped."""
    prepared = request.prepared
    train, validation = split_data(request.data)
    with ExitStack() as stack:
        where = stack.enter_context(surrounded(prepared.settings, prepared.device, prepared.precision))
        stop = stack.enter_context(StopFlag())
        model = unwrapped_model(request.model)
        train, validation = as_pairs(train, model, "training"), as_pairs(validation, model, "validation")
        origin = request.origin or find_origin(
            prepared.settings, model, out=request.out, resume=request.resume
        )
        check_start(prepared.settings, origin)
        model = model.to(device=where.device, memory_format=where.layout).train()  # type: ignore
        where.processes.agree_on_weights(model)
        optimizer = make_optimizer(request.means.optimizer, model, prepared.settings)
        rates = Rates(optimizer)
        stack.callback(rates.put_back)
        settings, notes = settle(prepared.settings, train, rates)
        session = Session(
            out=request.out,
            config={
                **request.config,
                "batch_size": settings.batch_size,
                "lr": settings.lr,
                **({} if origin.sha256 is None else {"weights_sha256": origin.sha256}),
            },
            data=request.data,
            environment=describe_environment(
                seed=settings.seed, world_size=where.processes.world_size, device=where.device
            ),
            view=_choose_view(stack, request, is_first=where.processes.is_first),
            processes=where.processes,
            stop=stop,
            has_scalars=settings.tensorboard,
        )
        if where.processes.is_first:
            loggers = [*request.audience.loggers, *named_loggers(settings)]
            session.hearers = Hearers(request.audience.callbacks, loggers, session.warn)
            stack.callback(session.hearers.close)
        stack.enter_context(session.opened(resume=request.resume))
        parts = _Parts(request, model, optimizer, settings, origin, train, validation, where)
        return _train_and_report(session, parts, notes)


def _train_and_report(session: Session, parts: _Parts, notes: Sequence[str]) -> Result:
    """Train, write the small model, then the report: nothing after the small model can lose it."""
    where, validation = parts.where, parts.validation.samples
    data = describe_data(parts.request.data, parts.train, parts.validation)
    take_out = parts.origin.apply(parts.model)
    try:
        dense = _try_to_copy(parts.model, session) if where.processes.is_first else None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer = _make_trainer(parts)
    except BaseException:
        # A budget that can't be reached, for example.
        take_out()
        raise
    before = describe_model(parts.model, one_sample(validation, where.device))
    name = session.config.get("model", type(parts.model).__name__)
    start = describe_start(parts.settings, parts.origin)
    lines = first_lines(trainer, name=str(name), data=data, before=before, start=start, device=where.device)
    few = few_updates_line(trainer)
    session.begin(trainer, [*lines, *notes, *([few] if few else [])])
    for warning in caught:
        if not issubclass(warning.category, ShortRunWarning):
            session.warn(in_one_line(warning.message))
    session.run(trainer, lambda: _scores(trainer, parts, session))
    small = trainer.finish()
    note_data(small, parts.request.data)
    note_name(small)
    session.keep(small)
    report: dict[str, Any] = {}
    if where.processes.is_first:
        report = make_report(session, trainer, small, dense=dense, before=before, validation=validation)
        report["start"] = start
        if trainer.lessons is not None:
            report["teacher"] = teacher_line(trainer.lessons)
    session.finish(report)
    if session.out is not None and where.processes.is_first:
        write_page(session, session.out, report)
    result = Result(model=small.eval(), history=tuple(session.history), report=report)
    session.hearers.end(result)
    return result


def _make_trainer(parts: _Parts) -> Trainer:
    settings, request = parts.settings, parts.request
    mixing = None
    if settings.mixup or settings.cutmix:
        if request.means.loss is not None:
            raise SettingError(
                "mixup and cutmix work with the default loss only. Leave them out, or leave loss out."
            )
        mixing = Mixing(settings.mixup, settings.cutmix, _count_classes(parts.model, _example(parts, 1)))
    example = _example(parts, 2)
    partition = request.partition
    return Trainer(
        parts.model,
        parts.optimizer,
        train=parts.train.samples,
        example=example if partition is None else replace(partition, example=example),
        settings=settings,
        objective=Objective(
            request.means.loss or CrossEntropy(settings.smoothing),
            parts.where,
            mixing,
            lessons_for(parts.model, settings, request.means.teacher),
        ),
        drawing=parts.train.drawing,
        method=request.prepared.method,
    )


def _example(parts: _Parts, count: int) -> Example:
    """The first inputs as the model is called with them: a tensor, a tuple or a dict."""
    inputs, _ = first_batch(parts.train.samples, count, "training")
    inputs = moved(inputs, parts.where.device, parts.where.layout)
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return tuple(inputs) if isinstance(inputs, list) else inputs


def _try_to_copy(model: nn.Module, session: Session) -> nn.Module | None:
    """The model as it is now, for the report to compare with; None, with a warning, if it can't be copied."""
    try:
        return keep_copy(model)
    except Exception as error:
        # A module may refuse to be copied in any way; the run itself needs no copy.
        session.warn(
            f"the model can't be copied ({type(error).__name__}): the report will have no dense model to "
            "compare with"
        )
        return None


def _choose_view(stack: ExitStack, request: Request, *, is_first: bool) -> View:
    """The view that was given, or one that lives as long as the run."""
    if request.audience.view is not None:
        return request.audience.view
    if request.audience.quiet or not is_first:
        return NullView()
    found = choose_view(type(request.model).__name__)
    stack.callback(found.close)
    return found


@torch.no_grad()
def _count_classes(model: nn.Module, example: Any) -> int:
    if not isinstance(example, Tensor) or example.dim() != 4:
        raise SettingError("mixup and cutmix are for images. Leave them out for other inputs.")
    with in_eval_mode(model):
        scores = logits_of(call_model(model, example))
    if scores.dim() != 2:
        raise SettingError(
            f"mixup and cutmix need one logit per class, and the model returns {tuple(scores.shape)}. Leave "
            "them out."
        )
    return scores.shape[1]


def _scores(trainer: Trainer, parts: _Parts, session: Session) -> Scores:
    where = parts.where
    where.processes.agree_on_buffers(trainer.model)
    how = Measuring(
        loss=parts.request.means.loss or CrossEntropy(),
        batch_size=max(1, trainer.order.batch_size // where.processes.world_size),
        device=where.device,
        precision=where.precision,
        processes=where.processes,
        layout=where.layout,
        metric=parts.request.means.metric,
        tell=session.warn,
    )
    return evaluate(trainer.result_model, parts.validation.samples, how)
