"""Which of a model's modules are norms that can lose channels: found by trying, not by name.

A module is such a norm if the same module with fewer channels, its eps and weight scaled, gives what the
whole one gives with the others at zero: RMSNorm in all its spellings, global response norms.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.execution.comparison import relative_difference
from trainonce.execution.precision import InDouble
from trainonce.structure.norms import NormScale

_EXACT = 1e-9
_NEVER = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.Linear,
    nn.Embedding,
    nn.PReLU,
    torch.jit.ScriptModule,
)
"""Modules that are no such norms; only for speed."""

_OTHER_EPS = 0.3
"""Large enough that a norm which doesn't scale it gives something else."""

Kind = tuple[str, int, int, float, str]
"""Parameter, its axis, offset, power and eps, as in `NormScale`."""


_KNOWN: dict[Any, Kind | None] = {}
"""What was found before, by what tells modules apart that compute in different ways."""


def find_norms(model: nn.Module) -> dict[str, NormScale]:
    """The norms of a model that can lose channels, by the module's name. The model does not run."""
    found: dict[str, NormScale] = {}
    for path, module in model.named_modules():
        if (size := _num_channels(module)) is None:
            continue
        mark = _mark(module)
        if mark not in _KNOWN or "forward" in vars(module):
            _KNOWN[mark] = _kind_of(module, size)
        if (kind := _KNOWN[mark]) is not None:
            name, axis, offset, power, eps = kind
            found[path] = NormScale(path, f"{path}.{name}" if path else name, axis, offset, power, eps)
    return found


def _num_channels(module: nn.Module) -> int | None:
    """How many channels a module would norm; None if it can't be a norm, by its looks."""
    own = [parameter for parameter in module._parameters.values() if parameter is not None]
    if isinstance(module, _NEVER) or not 1 <= len(own) <= 2 or any(True for _ in module.children()):
        return None
    size = own[0].numel()
    is_vector = all(parameter.numel() == size == max(parameter.shape, default=0) for parameter in own)
    return size if is_vector and size > 1 and _eps_names(module) else None


def _eps_names(module: nn.Module) -> list[str]:
    """Attributes that may be the eps."""
    names = [name for name, held in vars(module).items() if type(held) is float and 0 < held < 0.1]
    return [*names, "eps"] if isinstance(module, nn.RMSNorm) and module.eps is None else names


def _mark(module: nn.Module) -> Any:
    """Equal for two modules that compute the same way."""
    plain = (
        (name, str(held))
        for name, held in vars(module).items()
        if isinstance(held, bool | float | str | tuple) and name != "training"
    )
    own = ((name, None if held is None else held.dim()) for name, held in module._parameters.items())
    return type(module), tuple(plain), tuple(own)


def _kind_of(module: nn.Module, size: int) -> Kind | None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), InDouble(), suppress(Exception):
        whole = _trial_copy(module, size, generator)
        # A third of the channels stays: with a half, d/k and its square would be 2 and 4.
        kept = torch.randperm(size, generator=generator)[: max(1, size // 3)].sort().values
        gone = torch.ones(size, dtype=torch.bool)
        gone[kept] = False
        for parameter in whole._parameters.values():
            if parameter is not None:
                parameter.data[gone.reshape(parameter.shape)] = 0
        for data, axis in _inputs(size, generator):
            data.index_fill_(axis, gone.nonzero().flatten(), 0)
            wanted = _given(whole, data)
            if wanted is None or bool(wanted.index_select(axis, gone.nonzero().flatten()).any()):
                continue
            part, wanted = data.index_select(axis, kept), wanted.index_select(axis, kept)
            for kind in _kinds(module):
                other = _given(_small(whole, kind, kept, size), part)
                if other is not None and _is_same(wanted, other):
                    return kind
    return None


def _trial_copy(module: nn.Module, size: int, generator: torch.Generator) -> nn.Module:
    """The module with other weights and a large eps, in float64 on the CPU."""
    whole = bare_copy(module).eval()
    for parameter in whole._parameters.values():
        if parameter is not None:
            parameter.data = 0.5 + torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
    for name in _eps_names(module):
        vars(whole)[name] = _OTHER_EPS
    return whole


def bare_copy(module: nn.Module) -> nn.Module:
    """The module with parameters of its own, in float64 on the CPU, without the user's hooks."""
    bare = copy.copy(module)
    for name, held in vars(module).items():
        if name.endswith("_hooks") or "_hooks_" in name:
            vars(bare)[name] = type(held)() if held is not None else None
    vars(bare)["_parameters"] = {
        name: None
        if held is None
        else nn.Parameter(
            torch.empty(held.shape, dtype=torch.float64) if held.is_meta else held.detach().cpu().double()
        )
        for name, held in module._parameters.items()
    }
    vars(bare)["_buffers"] = {
        name: held if held is None or held.is_meta else held.detach().cpu().clone()
        for name, held in module._buffers.items()
    }
    return bare


def _inputs(size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, int]]:
    """Channels last behind tokens or positions, channels first; each with its axis of channels."""
    for shape, axis in (((2, 3, size), 2), ((2, 2, 3, size), 3), ((2, size, 2, 3), 1)):
        yield torch.randn(shape, generator=generator, dtype=torch.float64), axis


def _kinds(module: nn.Module) -> Iterator[Kind]:
    own = [(name, held) for name, held in module._parameters.items() if held is not None]
    choices = itertools.product(own, (0, 1), (0.5, 1.0), _eps_names(module))
    for (name, held), offset, power, eps in choices:
        yield name, max(range(held.dim()), key=lambda axis, held=held: held.shape[axis]), offset, power, eps


def _small(whole: nn.Module, kind: Kind, kept: Tensor, size: int) -> nn.Module:
    """The module with the kept channels, its weight and eps scaled."""
    name, _, offset, power, eps = kind
    small = bare_copy(whole)
    ratio = size / len(kept)
    for key, parameter in small._parameters.items():
        if parameter is None:
            continue
        axis = max(range(parameter.dim()), key=lambda axis, held=parameter: held.shape[axis])
        parameter.data = parameter.data.index_select(axis, kept)
        if key == name:
            factor = ratio**power
            parameter.data = parameter.data * factor + offset * (factor - 1)
    vars(small)[eps] = vars(small)[eps] * ratio
    for key, held in list(vars(small).items()):
        if held == (size,) or (type(held) is int and held == size):
            vars(small)[key] = type(held)((len(kept),)) if isinstance(held, tuple) else len(kept)
    return small


def _given(module: nn.Module, data: Tensor) -> Tensor | None:
    """What the module makes of a tensor, if it is a tensor of the same shape."""
    try:
        result = module(data.clone())
    except Exception:
        return None
    return result if isinstance(result, Tensor) and result.shape == data.shape else None


def _is_same(wanted: Tensor, found: Tensor) -> bool:
    return relative_difference([wanted], [found]) <= _EXACT
