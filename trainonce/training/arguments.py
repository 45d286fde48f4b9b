"""The arguments of `fit`, checked: each wrong one is refused in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainonce.errors import SettingError
from trainonce.messages.limits import Limits, check_value
from trainonce.messages.plain_text import shorten
from trainonce.pruning.distributed import unwrapped_optimizer
from trainonce.pruning.method import Method
from trainonce.pruning.policies.policy import Policy
from trainonce.teaching.teacher import Teacher
from trainonce.training.batches.own_order import OwnDrawing
from trainonce.training.batches.sources import Source
from trainonce.training.loop.evaluation import Loss
from trainonce.training.loop.learning_rate import Rates, shown
from trainonce.training.loop.metrics import Metric, is_streaming
from trainonce.training.methods import PARTS
from trainonce.training.optimizers import OPTIMIZERS
from trainonce.training.settings import Settings, as_plain, with_changes
from trainonce.training.teachers import described_teacher

Optimizer = torch.optim.Optimizer | Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
OF_OPTIMIZERS = ("opt", "momentum", "nesterov", "weight_decay")
"""Settings that have no effect if `fit` is given an optimizer."""

_FLAG = Limits(kind=bool)


def check_model(model: Any) -> None:
    """Raise SettingError unless it is a module with parameters to train."""
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise SettingError(f"model is the class {model.__name__}. Pass an instance: {model.__name__}(...).")
    if not isinstance(model, nn.Module):
        raise SettingError(f"model must be an nn.Module, got {type(model).__name__}.")
    if next(model.parameters(), None) is None:
        raise SettingError(f"this {type(model).__name__} has no parameters, so there is nothing to train.")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SettingError(
            f"all parameters of this {type(model).__name__} are frozen. Unfreeze some with "
            "requires_grad_(True)."
        )


def check_flags(*, out: Any, resume: Any, quiet: Any, config: Any) -> None:
    """Raise SettingError for a flag that is neither True nor False, or that has nothing to act on."""
    check_value("resume", resume, _FLAG)
    check_value("quiet", quiet, _FLAG)
    if resume and out is None:
        raise SettingError("resume=True needs out=, the folder of the run to continue.")
    if config is not None and not isinstance(config, Mapping):
        raise SettingError(f"config must be a dict, got {type(config).__name__}.")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Means:
    """What `fit` was told about how to train and to measure; None is the default."""

    loss: Loss | None = None
    metric: Metric | None = None
    optimizer: Optimizer | None = None
    policy: Policy | None = None
    teacher: Teacher | None = None
    """Who teaches; None: as the settings say."""


DEFAULT_MEANS = Means()


def check_means(means: Means) -> None:
    """Raise SettingError for the first part of a wrong type; optimizers are checked with the model."""
    loss, metric, policy = means.loss, means.metric, means.policy
    for name, value in (("loss", loss), ("metric", metric)):
        if isinstance(value, type):
            raise SettingError(
                f"{name} is the class {value.__name__}. Pass an instance, {value.__name__}(), or a function."
            )
    if loss is not None and not callable(loss):
        raise SettingError(
            f"loss must be a function of the model's output and the targets, got {shorten(loss)}."
        )
    if metric is not None and not callable(metric) and not is_streaming(metric):
        raise SettingError(
            "metric must be a function of outputs and targets, or an object with update, compute and reset, "
            f"got {shorten(metric)}."
        )
    if isinstance(policy, str):
        raise SettingError(
            f"policy is a string. Pass Settings(policy={policy!r}), or an object such as "
            "trainonce.policies.Taylor()."
        )
    if isinstance(policy, type):
        raise SettingError(f"policy is the class {policy.__name__}. Pass an instance: {policy.__name__}().")
    if policy is not None and not isinstance(policy, Policy):
        raise SettingError(f"policy must be a trainonce.policies.Policy, got {type(policy).__name__}.")


def check_out(out: Any) -> None:
    """Raise SettingError unless it is a path, or None."""
    if out is not None and not isinstance(out, str | os.PathLike):
        raise SettingError(f"out must be the path of a folder, got {shorten(out)}.")


def started_settings(settings: Settings | None, *, pretrained: Any, weights: Any) -> Settings:
    """The settings with the start that `fit` was told; its defaults must be those of that start."""
    if settings is not None and not isinstance(settings, Settings):
        advice = (
            "Write Settings(**settings)." if isinstance(settings, dict) else "Pass trainonce.Settings(...)."
        )
        raise SettingError(f"settings must be trainonce.Settings, got {type(settings).__name__}. {advice}")
    if not isinstance(pretrained, bool):
        raise SettingError(f"pretrained must be True or False, got {shorten(pretrained)}.")
    if weights is not None and not isinstance(weights, str | os.PathLike):
        raise SettingError(f"weights must be the path of a file, got {shorten(weights)}.")
    check_value("pretrained", pretrained, _FLAG)
    given = {"pretrained": pretrained, "weights": None if weights is None else os.fspath(weights)}
    if settings is None:
        return Settings(**given)
    for name, value in given.items():
        if value not in (None, False, getattr(settings, name)):
            raise SettingError(
                f"{name} can't be combined with settings, where it changes the defaults. Set it there: "
                f"Settings({name}={shorten(value)}, ...)."
            )
    return settings


def make_optimizer(given: Any, model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimizer that was passed, that a function returned, or that the settings name."""
    if given is None:
        return OPTIMIZERS[settings.opt](model.parameters(), settings)
    if isinstance(given, str):
        raise SettingError(
            f"optimizer is a string. Pass Settings(opt={given!r}), or a function: optimizer=lambda p: "
            "torch.optim.AdamW(p)."
        )
    given = unwrapped_optimizer(given)
    found = given
    if not isinstance(given, torch.optim.Optimizer):
        if not callable(given):
            raise SettingError(
                f"optimizer must be an optimizer, or a function that makes one from the parameters, got "
                f"{type(given).__name__}. For example: optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3)."
            )
        found = unwrapped_optimizer(given(model.parameters()))
    if not isinstance(found, torch.optim.Optimizer):
        raise SettingError(
            f"optimizer= returned a {type(found).__name__}. It must return a torch.optim.Optimizer."
        )
    own = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in own for group in found.param_groups for parameter in group["params"]):
        raise SettingError(
            f"this {type(found).__name__} has parameters that are not the model's. Make it from the model's "
            f"own: optimizer=lambda p: torch.optim.{type(found).__name__}(p)."
        )
    return found


def settle(settings: Settings, train: Source, rates: Rates) -> tuple[Settings, list[str]]:
    """The final batch size and learning rate, and a line for each setting that was overridden."""
    notes = []
    batch_size = settings.batch_size
    if isinstance(train.drawing, OwnDrawing) and train.drawing.gives_batches:
        if batch_size is not None:
            notes.append(f"using the DataLoader's batch_sampler, not batch_size={batch_size} of the settings")
        batch_size = train.batch_size
    elif batch_size is None:
        batch_size = train.batch_size or settings.samples_per_step
        if batch_size < 2:
            raise SettingError(
                "the training DataLoader has batches of 1 sample. Give it a batch_size, or pass "
                "Settings(batch_size=...)."
            )
    elif train.batch_size not in (None, 1, batch_size):
        notes.append(
            f"using batch_size={batch_size} from the settings, not the DataLoader's {train.batch_size}"
        )
    if settings.lr not in (rates.highest, settings.start.defaults(settings.opt)["lr"]):
        notes.append(
            f"using the optimizer's learning rate {shown(rates.own)}, not lr={settings.lr:g} from the "
            "settings"
        )
    if rates.has_scheduler:
        notes.append(
            "fit does not step the scheduler made for this optimizer: the learning rate "
            f"starts at {shown(rates.own)} and follows sched={settings.sched} of the "
            "settings"
        )
    return with_changes(settings, batch_size=batch_size, lr=rates.highest), notes


def describe_config(settings: Settings, config: Any, means: Means, method: Method | None) -> dict[str, Any]:
    """The settings as `config.yaml` records them; a policy object by its class, a method by its name."""
    found = dict(as_plain(settings) if config is None else config)
    if means.optimizer is not None:
        found = {name: value for name, value in found.items() if name not in OF_OPTIMIZERS}
    if means.policy is not None:
        found["policy"] = type(means.policy).__name__
    if means.teacher is not None:
        found |= described_teacher(means.teacher)
    if method is not None:
        found = {name: value for name, value in found.items() if name not in PARTS} | {"method": method.name}
    return found
