"""Can a cut follow into an optimizer's state? Takes an optimizer, says in one line what it keeps that has not its parameters' shapes."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks

from trainonce.surgery.optimizer_state import WAY_OUT, foreign_state


def refusal(optimizer: torch.optim.Optimizer) -> str | None:
    """Why a model that this optimizer trains can't be cut, as far as that can be told before its first step; None if it can."""
    kind = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        return f"{kind} keeps its state in flat vectors over all parameters, which can't be cut. {WAY_OUT}"
    inner = next(
        (value for value in vars(optimizer).values() if isinstance(value, torch.optim.Optimizer)), None
    )
    if inner is not None:
        return (
            f"{kind} wraps another optimizer ({type(inner).__name__}), and a cut can't follow into the state "
            f"of both. {WAY_OUT}"
        )
    if not hasattr(optimizer, "_optimizer_step_post_hooks"):
        return f"{kind} takes no hooks: its __init__ does not call that of torch.optim.Optimizer. {WAY_OUT}"
    return foreign_state(optimizer) or _foreign_state_after_a_step(optimizer)


def _foreign_state_after_a_step(optimizer: torch.optim.Optimizer) -> str | None:
    """What a second optimizer of the same kind and settings keeps after one step on stand-ins of the parameters' shapes."""
    if (dist.is_available() and dist.is_initialized()) or _global_optimizer_post_hooks:
        # The step might wait for other processes, or be counted by somebody: the first real one will tell.
        return None
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng(devices=_cuda_devices(optimizer)),
            torch.enable_grad(),
        ):
            warnings.simplefilter("ignore")
            groups = [_stand_in(group) for group in optimizer.param_groups]
            known = inspect.signature(type(optimizer).__init__).parameters
            settings = {
                name: copy.deepcopy(value) for name, value in optimizer.defaults.items() if name in known
            }
            other = type(optimizer)(groups, **settings)
            other.step()
            return foreign_state(other)
    except Exception:
        # Whatever a class of somebody else's wants in its constructor or its step: nothing is known, the
        # first real step will tell.
        return None


def _stand_in(group: Mapping[str, Any]) -> dict[str, Any]:
    """The group's settings with one new parameter for each number of axes, of the shape that tells most."""
    by_axes: dict[int, Tensor] = {}
    for parameter in sorted(group["params"], key=_tells_little):
        by_axes.setdefault(parameter.dim(), parameter)
    stand_ins = []
    for parameter in by_axes.values():
        stand_in = nn.Parameter(torch.full_like(parameter, 0.5))
        stand_in.grad = torch.full_like(stand_in, 0.25)
        stand_ins.append(stand_in)
    settings = {
        name: copy.deepcopy(value) for name, value in group.items() if name not in ("params", "param_names")
    }
    return settings | {"params": stand_ins}


def _tells_little(parameter: Tensor) -> tuple[int, int]:
    """Axes of one length look alike, and small ones are quick."""
    return -len(set(parameter.shape)), parameter.numel()


def _cuda_devices(optimizer: torch.optim.Optimizer) -> list[int]:
    parameters: Iterable[Tensor] = (
        parameter for group in optimizer.param_groups for parameter in group["params"]
    )
    return sorted(
        {parameter.device.index or 0 for parameter in parameters if parameter.device.type == "cuda"}
    )
