"""`fit`: takes a model and data, trains once, and gives the small model with everything that is known about it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.data.samples import Samples
from trainonce.errors import SettingError
from trainonce.execution.forward import call_model
from trainonce.messages.plain_text import in_one_line
from trainonce.pruning.distributed import unwrapped_model
from trainonce.pruning.policies.policy import Policy
from trainonce.pruning.pruner import ShortRunWarning
from trainonce.runs.folder import describe_environment
from trainonce.runs.report.live import Silence, View, choose_view
from trainonce.training.arguments import (
    Optimizer,
    check_arguments,
    check_model,
    describe_config,
    make_optimizer,
    settle,
)
from trainonce.training.batches.sources import Source, first_batch, split_data
from trainonce.training.loop.evaluation import CrossEntropy, Loss, Scores, evaluate, logits_of
from trainonce.training.loop.learning_rate import Rates
from trainonce.training.loop.mixing import Mixing
from trainonce.training.loop.precision import choose_precision
from trainonce.training.loop.processes import choose_device, joined, moved
from trainonce.training.loop.signals import StopFlag
from trainonce.training.loop.surroundings import Surroundings
from trainonce.training.loop.trainer import Trainer
from trainonce.training.results.announcement import describe_data, few_updates_line, first_lines
from trainonce.training.results.closing import make_report, write_page
from trainonce.training.results.outcome import Result, describe_model, keep_copy, one_sample
from trainonce.training.session import Session
from trainonce.training.settings import Settings, check_budget, with_changes


def fit(
    model: nn.Module,
    data: Any,
    *,
    keep_flops: float | None = None,
    keep_params: float | None = None,
    epochs: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    settings: Settings | None = None,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    policy: Policy | None = None,
    config: Mapping[str, Any] | None = None,
    view: View | None = None,
    quiet: bool = False,
) -> Result:
    """Train `model` once on `data` and give a small model that keeps the budget.

    `data` is a pair (training, validation); each a pair of tensors, a torch Dataset or a DataLoader.
    `settings` holds everything else about the run, `keep_flops`, `keep_params` and `epochs` being short for
    its fields; one budget must be given, and `keep_flops=1` trains the whole model. An `optimizer` (a
    function of the parameters) keeps its own learning rates, scaled by the schedule. With `out`, the run
    writes its checkpoints, metrics, small model and report there, and `resume` goes on where such a run was
    interrupted. Progress is shown unless `quiet`. The model is changed in place.

    Example: `small = trainonce.fit(model, (train, validation), keep_flops=0.45, epochs=100,
    out="runs/mine").model`.
    """
    check_model(model)
    check_arguments(out=out, settings=settings, loss=loss, policy=policy, view=view, quiet=quiet)
    settings = with_changes(
        settings or Settings(), keep_flops=keep_flops, keep_params=keep_params, epochs=epochs
    )
    check_budget(settings)
    train, validation = split_data(data)
    with ExitStack() as stack:
        where = _prepare_torch(stack, settings)
        stop = stack.enter_context(StopFlag())
        model = unwrapped_model(model).to(device=where.device, memory_format=where.layout).train()  # type: ignore[call-overload]
        where.processes.agree_on_weights(model)
        made = make_optimizer(optimizer, model, settings)
        rates = Rates(made)
        stack.callback(rates.put_back)
        settings, notes = settle(settings, train, rates)
        session = Session(
            out=None if out is None else Path(out),
            config=describe_config(settings, config, optimizer=optimizer, policy=policy),
            data=data,
            environment=describe_environment(
                seed=settings.seed, world_size=where.processes.world_size, device=where.device
            ),
            view=_choose_view(stack, view, model, is_shown=where.processes.is_first and not quiet),
            processes=where.processes,
            stop=stop,
            has_scalars=settings.tensorboard,
        )
        stack.enter_context(session.opened(resume=resume))
        lines = describe_data(data, train, validation)
        return _train_and_report(
            session, _Parts(model, made, train, validation, settings, where, loss, policy), lines, notes
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What a run is made of, all of it checked."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    train: Source
    validation: Source
    settings: Settings
    where: Surroundings
    loss: Loss | None
    policy: Policy | None


def _train_and_report(session: Session, parts: _Parts, data: Sequence[str], notes: Sequence[str]) -> Result:
    """Train, write the small model, then whatever can be said about it."""
    where, validation = parts.where, parts.validation.samples
    dense = _try_to_copy(parts.model, session) if where.processes.is_first else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = _make_trainer(parts)
    before = describe_model(parts.model, one_sample(validation, where.device))
    name = session.config.get("model", type(parts.model).__name__)
    lines = first_lines(trainer, name=str(name), data=data, before=before, device=where.device)
    few = few_updates_line(trainer)
    session.begin(trainer, [*lines, *notes, *([few] if few else [])])
    for warning in caught:
        if not issubclass(warning.category, ShortRunWarning):
            session.warn(in_one_line(warning.message))
    session.run(trainer, lambda: _scores(trainer, validation, where, parts.loss or CrossEntropy()))
    small = trainer.finish()
    session.keep(small)
    report: dict[str, Any] = {}
    if where.processes.is_first:
        report = make_report(session, trainer, small, dense=dense, before=before, validation=validation)
    session.finish(report)
    if session.out is not None and where.processes.is_first:
        write_page(session, session.out, report)
    return Result(model=small.eval(), history=tuple(session.history), report=report)


def _make_trainer(parts: _Parts) -> Trainer:
    settings = parts.settings
    mixing = None
    if settings.mixup or settings.cutmix:
        if parts.loss is not None:
            raise SettingError(
                "mixup and cutmix mix classes, which only the own loss of fit knows. Leave them out, or "
                "leave loss out."
            )
        mixing = Mixing(settings.mixup, settings.cutmix, _count_classes(parts.model, _example(parts, 1)))
    return Trainer(
        parts.model,
        parts.optimizer,
        train=parts.train.samples,
        example=_example(parts, 2),
        settings=settings,
        surroundings=parts.where,
        loss=parts.loss or CrossEntropy(settings.smoothing),
        mixing=mixing,
        drawing=parts.train.drawing,
        policy=parts.policy,
    )


def _example(parts: _Parts, count: int) -> Any:
    """The first inputs as the model is called with them: a tensor, a tuple or a dict."""
    inputs, _ = first_batch(parts.train.samples, count, "training")
    inputs = moved(inputs, parts.where.device, parts.where.layout)
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return tuple(inputs) if isinstance(inputs, list) else inputs


def _try_to_copy(model: nn.Module, session: Session) -> nn.Module | None:
    """The model as it is now, to compare with at the end; None, and a line, if it can't be copied."""
    try:
        return keep_copy(model)
    except Exception as error:
        # A module may refuse to be copied in any way; the run itself needs no copy.
        session.warn(
            f"the model can't be copied ({type(error).__name__}): the report will compare it with nothing"
        )
        return None


def _choose_view(stack: ExitStack, view: View | None, model: nn.Module, *, is_shown: bool) -> View:
    """The view that was given, or one that lives as long as the run."""
    if view is not None or not is_shown:
        return view or Silence()
    found = choose_view(type(model).__name__)
    stack.callback(found.close)
    return found


def _prepare_torch(stack: ExitStack, settings: Settings) -> Surroundings:
    """Device, format and processes, and torch's own settings for as long as the run lasts."""
    device = choose_device(settings.device)
    precision = choose_precision(device, amp=settings.amp, amp_dtype=settings.amp_dtype)
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    stack.enter_context(_settings_of_torch(settings))
    return Surroundings(
        device=device, precision=precision, processes=stack.enter_context(joined(device)), layout=layout
    )


@torch.no_grad()
def _count_classes(model: nn.Module, example: Any) -> int:
    if not isinstance(example, Tensor) or example.dim() != 4:
        raise SettingError("mixup and cutmix mix images. Leave them out for inputs of another kind.")
    was_training = model.training
    scores = logits_of(call_model(model.eval(), example))
    model.train(was_training)
    if scores.dim() != 2:
        raise SettingError(
            f"mixup and cutmix need one score per class, and the model gives {tuple(scores.shape)}. Leave "
            "them out."
        )
    return scores.shape[1]


def _scores(trainer: Trainer, validation: Samples, where: Surroundings, loss: Loss) -> Scores:
    where.processes.agree_on_buffers(trainer.model)
    return evaluate(
        trainer.result_model,
        validation,
        batch_size=max(1, trainer.order.batch_size // where.processes.world_size),
        device=where.device,
        precision=where.precision,
        loss=loss,
        processes=where.processes,
        layout=where.layout,
    )


@contextmanager
def _settings_of_torch(settings: Settings) -> Iterator[None]:
    """Determinism as asked for; the caller's random state is put back at the end."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    state, python_state = torch.random.get_rng_state(), random.getstate()
    if settings.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
        torch.random.set_rng_state(state)
        random.setstate(python_state)
