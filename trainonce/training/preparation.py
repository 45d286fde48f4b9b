"""A run's settings, checked against this machine before any data is read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainonce.pruning.policies.policy import Policy
from trainonce.runs.loggers import check_package
from trainonce.runs.scalars import check_installed
from trainonce.training.loop.precision import Precision, choose_precision
from trainonce.training.loop.processes import choose_device
from trainonce.training.policy_names import find_policy
from trainonce.training.settings import Settings, check_budget


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Settings, and what they name on this machine."""

    settings: Settings
    policy: Policy
    device: torch.device
    precision: Precision


def prepare(settings: Settings, policy: Policy | None = None) -> Prepared:
    """The settings with their policy, device and precision; SettingError if one of them is not available.

    A given `policy` takes the place of the one that the settings name.
    """
    if settings.tensorboard:
        check_installed()
    for is_wanted, package in ((settings.wandb, "wandb"), (settings.mlflow, "mlflow")):
        if is_wanted:
            check_package(package)
    policy = find_policy(settings.policy) if policy is None else policy
    device = choose_device(settings.device)
    precision = choose_precision(device, amp=settings.amp, amp_dtype=settings.amp_dtype)
    check_budget(settings)
    return Prepared(settings, policy, device, precision)
