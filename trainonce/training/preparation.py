"""A run's settings, checked against this machine before any data is read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainonce.pruning.method import Method
from trainonce.pruning.policies.policy import Policy
from trainonce.runs.loggers import check_package
from trainonce.runs.scalars import check_installed
from trainonce.training.loop.precision import Precision, choose_precision
from trainonce.training.loop.processes import choose_device
from trainonce.training.methods import method_of
from trainonce.training.settings import Settings, check_budget


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Settings, and what they name on this machine."""

    settings: Settings
    method: Method
    device: torch.device
    precision: Precision


def prepare(settings: Settings, policy: Policy | None = None, method: Method | None = None) -> Prepared:
    """The settings with their method, device and precision; SettingError if one of them is not available.

    A given `policy` or `method` takes the place of the one that the settings name.
    """
    if settings.tensorboard:
        check_installed()
    for is_wanted, package in ((settings.wandb, "wandb"), (settings.mlflow, "mlflow")):
        if is_wanted:
            check_package(package)
    method = method_of(settings, policy) if method is None else method
    device = choose_device(settings.device)
    precision = choose_precision(device, amp=settings.amp, amp_dtype=settings.amp_dtype)
    check_budget(settings)
    return Prepared(settings, method, device, precision)
