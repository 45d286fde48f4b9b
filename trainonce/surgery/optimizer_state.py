"""What an optimizer keeps of its parameters: whether it can be cut with them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import PlanError
from trainonce.surgery.narrowing import follows_shape

WAY_OUT = "Use an optimizer whose state has the shapes of its parameters, such as SGD, AdamW or Muon."


def check_owned(optimizer: Any, model: nn.Module) -> list[torch.optim.Optimizer]:
    """One or several optimizers as a list; PlanError if one trains none of the model's parameters."""
    several = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
    optimizers = [] if optimizer is None else list(several)
    if optimizer is not None and not optimizers:
        raise PlanError("the list of optimizers is empty. Pass those that train this model, or leave it out.")
    own = {id(parameter) for parameter in model.parameters()}
    for member in optimizers:
        if not isinstance(member, torch.optim.Optimizer):
            raise PlanError(
                f"optimizer must be a torch.optim.Optimizer, got {type(member).__name__}. Pass the one that "
                "trains this model, or leave it out."
            )
        if not any(id(parameter) in own for group in member.param_groups for parameter in group["params"]):
            raise PlanError(
                f"this {type(member).__name__} trains none of the model's parameters. Pass the optimizer "
                "that trains this model, or leave it out."
            )
    return optimizers


def foreign_state(optimizer: torch.optim.Optimizer, *, of: Collection[Tensor] | None = None) -> str | None:
    """What an optimizer keeps of some parameters (or all) that can't be cut with them, in words.

    None if all of it can.
    """
    if isinstance(optimizer, torch.optim.LBFGS) and optimizer.state:
        return (
            f"{type(optimizer).__name__} keeps its state in flat vectors over all parameters, which can't be "
            f"cut. {WAY_OUT}"
        )
    chosen = None if of is None else {id(parameter) for parameter in of}
    for owner, state in optimizer.state.items():
        if chosen is not None and id(owner) not in chosen:
            continue
        shape = owner.shape if isinstance(owner, Tensor) else torch.Size()
        for key, item in state.items() if isinstance(state, Mapping) else [(owner, state)]:
            for tensor in _tensors_in(item):
                if tensor.numel() > 1 and not (tensor is item and follows_shape(tensor, shape)):
                    return (
                        f"{type(optimizer).__name__} keeps {str(key)!r} of shape {tuple(tensor.shape)} for a "
                        "parameter of shape "
                        f"{tuple(shape)}, which can't be cut with it. {WAY_OUT}"
                    )
    return _foreign_attribute(optimizer, chosen)


def _foreign_attribute(optimizer: torch.optim.Optimizer, chosen: Collection[int] | None) -> str | None:
    """The same for attributes of the optimizer: copies of parameters, or flat vectors over all of them."""
    parameters = {
        id(parameter): parameter for group in optimizer.param_groups for parameter in group["params"]
    }
    shapes = {
        parameter.shape for number, parameter in parameters.items() if chosen is None or number in chosen
    }
    length = sum(parameter.numel() for parameter in parameters.values())
    for name, value in vars(optimizer).items():
        for tensor in _tensors_in(value) if name not in ("state", "param_groups") else ():
            is_like = tensor.shape in shapes or tensor.numel() == length
            if id(tensor) not in parameters and tensor.numel() > 1 and is_like:
                return (
                    f"{type(optimizer).__name__} keeps {name!r} of shape {tuple(tensor.shape)}, which can't "
                    "be "
                    f"cut. {WAY_OUT}"
                )
    return None


def _tensors_in(item: Any) -> Iterator[Tensor]:
    if isinstance(item, Tensor):
        yield item
    elif isinstance(item, Mapping | list | tuple):
        for part in item.values() if isinstance(item, Mapping) else item:
            yield from _tensors_in(part)
