"""`fit`: takes a model and data, trains once, and gives the small model with everything that is known about it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.distributed import unwrapped_model
from trainonce.report.live import Silence, View
from trainonce.training.evaluation import CrossEntropy, Loss, Scores, call, evaluate, logits_of
from trainonce.training.limits import BadSetting
from trainonce.training.mixing import Mixing
from trainonce.training.optimizers import OPTIMIZERS
from trainonce.training.outcome import Result, compare_models, describe_layers, keep_copy, one_sample
from trainonce.training.precision import choose_precision
from trainonce.training.processes import choose_device, joined, moved
from trainonce.training.run_folder import describe_environment
from trainonce.training.samples import Samples, split_data
from trainonce.training.session import Session
from trainonce.training.settings import Settings, as_plain, with_changes
from trainonce.training.signals import StopFlag
from trainonce.training.trainer import Surroundings, Trainer


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
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None,
    config: Mapping[str, Any] | None = None,
    view: View | None = None,
) -> Result:
    """Train `model` once on `data` and give a small model that keeps the budget.

    `data` is a pair (training, validation); each a pair of tensors, a torch Dataset or a DataLoader. `settings` holds everything
    else about the run, `keep_flops`, `keep_params` and `epochs` being short for its fields. With `out`, the run writes its
    checkpoints, metrics and report there, and `resume` goes on where such a run was interrupted. The model is changed in place.

    Example: `small = trainonce.fit(model, (train, validation), keep_flops=0.45, epochs=100, out="runs/mine").model`.
    """
    if not isinstance(model, nn.Module):
        raise BadSetting(f"model must be an nn.Module, got {type(model).__name__}.")
    settings = with_changes(settings or Settings(), keep_flops=keep_flops, keep_params=keep_params, epochs=epochs)
    train, validation = split_data(data)
    model = unwrapped_model(model)
    device = choose_device(settings.device)
    precision = choose_precision(device, amp=settings.amp, amp_dtype=settings.amp_dtype)
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    with ExitStack() as stack:
        stack.enter_context(_settings_of_torch(settings))
        processes = stack.enter_context(joined(device))
        stop = stack.enter_context(StopFlag())
        where = Surroundings(device=device, precision=precision, processes=processes, layout=layout)
        model = model.to(device=device, memory_format=layout).train()  # type: ignore[call-overload]
        processes.agree_on_weights(model)
        dense = keep_copy(model) if processes.is_first else None
        make = optimizer or (lambda parameters: OPTIMIZERS[settings.opt](parameters, settings))
        session = Session(
            out=None if out is None else Path(out),
            config=dict(config or as_plain(settings)),
            environment=describe_environment(seed=settings.seed, world_size=processes.world_size, device=device),
            view=view or Silence(),
            processes=processes,
            stop=stop,
            has_scalars=settings.tensorboard,
        )
        stack.enter_context(session.opened(resume=resume))
        with _warnings_told(session.warn):
            trainer = _make_trainer(model, make(model.parameters()), train, settings, where, loss)
        session.restore(trainer)
        plain_loss = loss or CrossEntropy()
        session.run(trainer, lambda: _scores(trainer, validation, where, plain_loss))
        small = trainer.finish()
        report = _report(session, trainer, small, dense, validation) if dense is not None else {}
        session.finish(small, report)
        return Result(model=small.eval(), history=tuple(session.history), report=report)


def _make_trainer(
    model: nn.Module, optimizer: torch.optim.Optimizer, train: Samples, settings: Settings, where: Surroundings, loss: Loss | None
) -> Trainer:
    mixing = None
    if settings.mixup or settings.cutmix:
        if loss is not None:
            raise BadSetting("mixup and cutmix mix classes, which only the own loss of fit knows. Leave them out, or leave loss out.")
        mixing = Mixing(settings.mixup, settings.cutmix, _count_classes(model, train, where))
    inputs, _ = next(iter(train.batches([(torch.arange(2), 0)])))
    return Trainer(
        model,
        optimizer,
        train=train,
        example=moved(inputs, where.device, where.layout),
        settings=settings,
        surroundings=where,
        loss=loss or CrossEntropy(settings.smoothing),
        mixing=mixing,
    )


@contextmanager
def _warnings_told(tell: Callable[[str], None]) -> Iterator[None]:
    """What is warned of inside goes to the run's log and to whoever watches it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        tell(" ".join(str(warning.message).split()))


def _count_classes(model: nn.Module, train: Samples, where: Surroundings) -> int:
    return _output_of(model, one_sample(train, where.device)).shape[1]


@torch.no_grad()
def _output_of(model: nn.Module, example: Any) -> Tensor:
    was_training = model.training
    output = logits_of(call(model.eval(), example))
    model.train(was_training)
    return output


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


def _report(session: Session, trainer: Trainer, small: nn.Module, dense: nn.Module, validation: Samples) -> dict[str, Any]:
    device = next(small.parameters()).device
    facts = compare_models(small, dense, validation=validation, example=one_sample(validation, device), batch_size=trainer.order.batch_size)
    last = session.history[-1]
    facts["after"] |= {name: last[name] for name in ("top1", "top5", "validation_loss")}
    return {
        "version": 1,
        **facts,
        "layers": describe_layers(trainer.pruner, small),
        "schedule": session.describe_schedule(trainer),
        "num_skipped": trainer.num_skipped,
        "controller_samples": len(trainer.controller_samples) if trainer.pruner is not None else 0,
        "seconds": session.seconds,
        "config": session.config,
        "environment": session.environment,
        "history": session.history,
    }


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
