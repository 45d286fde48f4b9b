"""The configuration that a model holds, changed so that it builds the small model."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import PlanError
from trainonce.execution.comparison import relative_difference
from trainonce.execution.forward import copied, output_tensors, run_model
from trainonce.execution.precision import InDouble
from trainonce.execution.restoring import buffers_kept, in_eval_mode
from trainonce.execution.settings import holds_settings
from trainonce.messages.plain_text import quoted, reason_of, shown
from trainonce.structure.channels import Example
from trainonce.structure.settings import SettingChange, get_setting, set_setting

_ROUNDING = 1e-3

HELD_AS = "config"
"""The attribute that a model of the Hugging Face kind holds its configuration in."""


def change_settings(model: nn.Module, changes: Sequence[SettingChange]) -> None:
    """Give the model, and all modules that share its configuration, a changed copy of it."""
    if not changes:
        return
    before = vars(model)[HELD_AS]
    after = copy.deepcopy(before)
    modules = dict(model.named_modules())
    for change in changes:
        number = change.after
        if change.like:
            where, _, name = change.like.rpartition(".")
            number = vars(modules[where])[name]
        set_setting(after, change.path, number)
    renewed = dict(_pairs(before, after))
    for module in modules.values():
        for name, held in list(vars(module).items()):
            if holds_settings(held) and id(held) in renewed:
                vars(module)[name] = renewed[id(held)]


def check_settings(model: nn.Module, changes: Sequence[SettingChange]) -> None:
    """Raise PlanError unless the model's configuration has these numbers: a plan could say anything."""
    config, modules = vars(model).get(HELD_AS), dict(model.named_modules())
    for change in changes:
        where, _, name = change.like.rpartition(".")
        try:
            found = get_setting(config, change.path) if holds_settings(config) else None
            if change.like:
                fits = type(found) is float and type(vars(modules[where])[name]) is float
            else:
                fits = type(change.after) is int and found == change.before and not isinstance(found, bool)
        except (AttributeError, KeyError):
            fits, found = False, None
        if not fits or not holds_settings(config):
            raise PlanError(
                f"the plan expects {shown(change.path)} in the model's configuration to be "
                f"{quoted(change.before)}, it is {quoted(found)}. Build the model with the settings the plan "
                "was made with."
            )


def refusal_of_settings(model: nn.Module, example: Example) -> str | None:
    """Why the model's configuration doesn't build this very model; None if it does.

    A model built from it and given the same weights must give the same outputs, bit for bit.
    """
    config = vars(model)[HELD_AS]
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built = type(model)(copy.deepcopy(config))
        tensor = next(model.parameters())
        built.to(device=tensor.device, dtype=tensor.dtype)
        built.load_state_dict(model.state_dict(), strict=True)
        with in_eval_mode(built, model), buffers_kept(model):
            found, wanted, again = (_outputs(one, example) for one in (built, model, model))
    except Exception as error:
        return reason_of(error, longest=300)
    # A device may add in another order each time: then bits say nothing.
    is_judge = all(map(_equal, wanted, again))
    difference = relative_difference(wanted, found)
    if difference == 0 or (not is_judge and difference <= _ROUNDING):
        return None
    return f"what {type(config).__name__} builds gives other outputs"


def _outputs(model: nn.Module, example: Example) -> list[Tensor]:
    is_double = next(model.parameters()).dtype is torch.float64
    with torch.no_grad(), torch.random.fork_rng(devices=[]), InDouble() if is_double else nullcontext():
        torch.manual_seed(0)
        return output_tensors(run_model(model, copied(example)))


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and (one.is_meta or torch.equal(one, other))


def _pairs(before: Any, after: Any) -> list[tuple[int, Any]]:
    """Each configuration inside one, by identity, and what stands for it in the copy."""
    found = [(id(before), after)]
    for name, held in vars(before).items():
        if holds_settings(held):
            found += _pairs(held, vars(after)[name])
    return found
