"""LayerNorm of fewer channels that divides by as many as before: the others count as the zeros they were.

    y = (x - mean_d(x)) / sqrt(var_d(x) + eps) * weight + bias,    mean and variance over d >= k channels

It is torch's own LayerNorm of x with d - k zeros beside it, so it rounds as the whole model does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from trainonce.execution.straight_code import as_graph, give_forward, given_forward

_apart: Any = torch._nested_tensor_from_mask  # pyright: ignore[reportPrivateImportUsage]


def keep_divisor(module: Any, divisor: int, axis: int) -> None:
    """Let a LayerNorm over `axis` of its data divide by `divisor` channels, however many it has."""
    graph, ways = _graphs(axis, module.bias is not None)
    give_forward(module, graph, ways, divisor)


def kept_divisor(module: nn.Module) -> int | None:
    """The divisor of a LayerNorm that keeps one, also of a model from a pickle; None of any other module."""
    known = given_forward(module) if isinstance(module, nn.LayerNorm) else None
    return known[1] if known is not None else None


@lru_cache(maxsize=4)
def _graphs(axis: int, has_bias: bool) -> tuple[fx.GraphModule, dict[bool, fx.GraphModule]]:
    over: Callable[..., Any] = _with_bias if has_bias else _without_bias

    def first(module: Any, ways: Any, divisor: Any, data: Any) -> Any:
        return over(module, divisor, data.movedim(1, -1)).movedim(-1, 1)

    def last(module: Any, ways: Any, divisor: Any, data: Any) -> Any:
        return over(module, divisor, data)

    ways = {False: as_graph(last if axis == -1 else first), True: as_graph(_nested)}
    return as_graph(_norm), ways


def _norm(module: Any, ways: Any, divisor: Any, input: Any) -> Any:
    return ways[input.is_nested].forward(module, ways, divisor, input)


def _nested(module: Any, ways: Any, divisor: Any, data: Any) -> Any:
    """Sequences of several lengths: padded, normalized and apart again."""
    padded = data.to_padded_tensor(0.0)
    lengths = data._nested_tensor_size()[:, :1].to(padded.device)
    is_there = torch.ones_like(padded[..., 0]).cumsum(-1) <= lengths
    normalized = ways[False].forward(module, ways, divisor, padded)
    return _apart(normalized, is_there, mask_check=False)


def _with_bias(module: Any, divisor: Any, data: Any) -> Any:
    return _over_all(module, divisor, data, _among_zeros(module.bias, module, divisor))


def _without_bias(module: Any, divisor: Any, data: Any) -> Any:
    return _over_all(module, divisor, data, None)


def _over_all(module: Any, divisor: Any, data: Any, bias: Any) -> Any:
    weight = _among_zeros(module.weight, module, divisor)
    whole = F.layer_norm(_among_zeros(data, module, divisor), (divisor,), weight, bias, module.eps)
    # Models reshape what LayerNorm returns with `view`.
    return whole.narrow(-1, 0, module.weight.shape[0]).contiguous()


def _among_zeros(data: Any, module: Any, divisor: Any) -> Any:
    return F.pad(data, (0, divisor - module.weight.shape[0]))
