"""Whether an optimizer's state can be cut with its parameters, which takes state of their shapes."""

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
    """Why a model can't be cut while this optimizer trains it; None if it can, as far as is known by now."""
    kind = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        return f"{kind} keeps its state in flat vectors over all parameters, which can't be cut. {WAY_OUT}"
    inner = next(
        (value for value in vars(optimizer).values() if isinstance(value, torch.optim.Optimizer)), None
    )
    if inner is not None:
        return (
            f"{kind} wraps another optimizer ({type(inner).__name__}), and the state of both can't be cut. "
            f"{WAY_OUT}"
        )
    if not hasattr(optimizer, "_optimizer_step_post_hooks"):
        return f"{kind} has no step hooks: its __init__ doesn't call torch.optim.Optimizer's. {WAY_OUT}"
    return foreign_state(optimizer) or _foreign_state_after_a_step(optimizer)


def _foreign_state_after_a_step(optimizer: torch.optim.Optimizer) -> str | None:
    """The same, from one step of a second optimizer of this kind on dummy parameters."""
    if (dist.is_available() and dist.is_initialized()) or _global_optimizer_post_hooks:
        # The step could wait for other ranks, or be counted by someone's hook; the first real step will tell.
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
        # A third-party class may need anything in its constructor or step; the first real step will tell.
        return None


def _stand_in(group: Mapping[str, Any]) -> dict[str, Any]:
    """The group's settings, with one dummy parameter per number of axes, in the most telling shape."""
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
    """Sort key: axes of equal length look alike, and small parameters are quick."""
    return -len(set(parameter.shape)), parameter.numel()


def _cuda_devices(optimizer: torch.optim.Optimizer) -> list[int]:
    parameters: Iterable[Tensor] = (
        parameter for group in optimizer.param_groups for parameter in group["params"]
    )
    return sorted(
        {parameter.device.index or 0 for parameter in parameters if parameter.device.type == "cuda"}
    )
