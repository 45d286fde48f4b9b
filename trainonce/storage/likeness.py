"""Checks that a state_dict from disk matches what it is loaded into, before anything is changed.

`load_state_dict` of models and optimizers trusts most of what it is given, and fails later or halfway.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import TrainonceError
from trainonce.messages.plain_text import quoted, shown

Shapes = Mapping[str, tuple[int, ...]]

_SMALL, _LARGE = 2**16, 2**23
"""Elements up to which a probe is always computed, and up to which it is as a last resort."""


class MismatchError(TrainonceError, ValueError):
    """A state_dict with unexpected keys, types, shapes or dtypes."""


def check_alike(found: Any, template: Any, where: str) -> None:
    """Raise MismatchError unless `found` has the types, keys, lengths, shapes and dtypes of `template`.

    In the template None matches anything, and an empty container matches any content.
    """
    if template is None:
        return
    if isinstance(template, Tensor):
        if not isinstance(found, Tensor):
            raise MismatchError(f"{where} is {_kind(found)}, not a tensor")
        if (found.shape, found.dtype) != (template.shape, template.dtype):
            raise MismatchError(f"{where} is {_kind(found)}, not {_kind(template)}")
    elif isinstance(template, Mapping):
        _check_kind(found, Mapping, template, where)
        if template and (different := set(template) ^ set(found)):
            name = min(different, key=str)
            raise MismatchError(
                f"{where} has {'no' if name in template else 'an unknown'} entry {shown(name)}"
            )
        for key, part in template.items():
            check_alike(found[key], part, f"{where}/{shown(key)}")
    elif isinstance(template, list | tuple):
        _check_kind(found, type(template), template, where)
        if template and len(found) != len(template):
            raise MismatchError(f"{where} has {len(found)} entries, not {len(template)}")
        for place, part in enumerate(template):
            check_alike(found[place], part, f"{where}/{place}")
    elif isinstance(template, int | float) and not isinstance(template, bool):
        if not is_number(found):
            raise MismatchError(f"{where} is {quoted(found)}, not a number")
    else:
        _check_kind(found, type(template), template, where)


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float, but not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any, most: int) -> bool:
    """Whether a value is an integer from 0 to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def check_weights(found: Any, model: nn.Module, shapes: Shapes, where: str) -> None:
    """Raise MismatchError unless `found` is a state_dict of this model with tensors of these `shapes`."""
    _check_kind(found, Mapping, {}, where)
    own = model.state_dict(keep_vars=True)
    free = _free_prefixes(model)
    for name in {**own, **found}:
        if not isinstance(name, str):
            raise MismatchError(f"{where} has an unknown entry {shown(name)}")
        if name.endswith("_extra_state") or any(name.startswith(prefix) for prefix in free):
            continue
        if (name in own) != (name in found):
            raise MismatchError(f"{where} has {'no' if name in own else 'an unknown'} entry {shown(name)}")
        template = torch.empty(shapes.get(name, tuple(own[name].shape)), dtype=own[name].dtype, device="meta")
        check_alike(found[name], template, f"{where}/{name}")


def check_optimizer(
    found: Any, optimizer: torch.optim.Optimizer, shapes: Sequence[tuple[int, ...]], where: str
) -> None:
    """Raise MismatchError unless `found` is a state_dict of this optimizer for parameters of these shapes."""
    own = optimizer.state_dict()
    check_alike(found, {key: [] if key == "param_groups" else None for key in own}, where)
    _check_kind(found["state"], Mapping, {}, f"{where}/state")
    for place, group in enumerate(own["param_groups"]):
        there = f"{where}/param_groups/{place}"
        if len(found["param_groups"]) != len(own["param_groups"]):
            raise MismatchError(
                f"{where}/param_groups has {len(found['param_groups'])} entries, not "
                f"{len(own['param_groups'])}"
            )
        check_alike(found["param_groups"][place], group, there)
        for key, value in group.items():
            other = found["param_groups"][place][key]
            is_fixed = key == "params" or value is None or isinstance(value, bool | str)
            if is_fixed and (type(other) is not type(value) or other != value):
                raise MismatchError(f"{there}/{key} is {quoted(other)}, not {quoted(value)}")
    expected = _state_after_a_step(optimizer, shapes) if found["state"] else None
    for number, state in found["state"].items():
        if not is_count(number, len(shapes) - 1):
            raise MismatchError(f"{where}/state has an unknown entry {shown(number)}")
        check_alike(state, {} if expected is None else expected[number], f"{where}/state/{number}")


def _state_after_a_step(
    optimizer: torch.optim.Optimizer, shapes: Sequence[tuple[int, ...]]
) -> list[dict[str, Any]] | None:
    """The optimizer's state for each parameter, from one step on dummies; None if that step fails."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        # Third-party optimizers may add state as training goes on.
        return None
    # Large dummies go on the meta device if the optimizer reads no values; small ones are faster to compute.
    for most in (_SMALL, _LARGE):
        with suppress(AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return _probed(optimizer, shapes, most)
    return None


def _probed(
    optimizer: torch.optim.Optimizer, shapes: Sequence[tuple[int, ...]], most: int
) -> list[dict[str, Any]]:
    probe: Any = copy.copy(optimizer)
    probe.state, probe.param_groups = defaultdict(dict), []
    sizes, places = iter(shapes), []
    for group in optimizer.param_groups:
        # Parameters of one shape and dtype have the same kind of state.
        stand_ins: dict[Any, nn.Parameter] = {}
        for own in group["params"]:
            shape = next(sizes)
            if (shape, own.dtype) not in stand_ins:
                device = "cpu" if math.prod(shape) <= most else "meta"
                stand_ins[shape, own.dtype] = parameter = nn.Parameter(
                    torch.zeros(shape, dtype=own.dtype, device=device)
                )
                parameter.grad = torch.zeros_like(parameter)
            places.append(stand_ins[shape, own.dtype])
        probe.param_groups.append(
            {**group, "params": list(stand_ins.values())} | ({"foreach": False} if "foreach" in group else {})
        )
    type(optimizer).step(probe)
    return [dict(probe.state.get(parameter, {})) for parameter in places]


def _free_prefixes(model: nn.Module) -> list[str]:
    """Prefixes of modules with custom state loading, which may accept more than they have."""
    return [
        f"{path}." if path else ""
        for path, module in model.named_modules()
        if module._load_state_dict_pre_hooks
        or (
            not type(module).__module__.startswith("torch.nn.")
            and type(module)._load_from_state_dict is not nn.Module._load_from_state_dict
        )
    ]


def _check_kind(found: Any, kind: type, template: Any, where: str) -> None:
    if not isinstance(found, kind):
        raise MismatchError(f"{where} is {_kind(found)}, not {_kind(template)}")


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return (
            f"a tensor of {str(value.dtype).removeprefix('torch.')} with shape {quoted(tuple(value.shape))}"
        )
    return f"a {type(value).__name__}"
