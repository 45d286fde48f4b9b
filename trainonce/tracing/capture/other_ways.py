"""Calls that a recorded run answers in another way, so that nothing is hidden inside them.

Fused recurrent kernels, dropout of whole channels, padding of packed sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from trainonce.tracing.capture.application import apply_rule
from trainonce.tracing.operators.registry import Call, aten
from trainonce.tracing.state.tracer import Tracer

RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
"""Calls that a fused kernel may answer."""

DROPOUTS = frozenset(
    {
        torch.nn.functional.dropout1d,
        torch.nn.functional.dropout2d,
        torch.nn.functional.dropout3d,
        torch.nn.functional.feature_alpha_dropout,
        torch.feature_dropout,
        torch.feature_alpha_dropout,
    }
)
"""Calls that make a tensor of chances inside, from sizes that nobody sees."""


def called(function: Callable[..., Any], args: Any, kwargs: dict[str, Any], tracer: Tracer) -> Any:
    """What a call gives, with all that it does to labels where rules see it."""
    if function in RECURRENT:
        # The fused kernels hide the products that the layers are made of.
        with _without_fused_kernels():
            return function(*args, **kwargs)
    if function in DROPOUTS:
        return _dropped_out(function, args, kwargs)
    if getattr(function, "__name__", "") == "_pad_packed_sequence":
        return _padded(args, kwargs, tracer)
    return function(*args, **kwargs)


def _padded(args: Any, kwargs: dict[str, Any], tracer: Tracer) -> Any:
    """Packed sequences side by side again; torch copies them one by one into a tensor from nowhere."""
    operator = aten._pad_packed_sequence.default
    with _disable_current_modes():
        result = operator(*args, **kwargs)
        apply_rule(Call(tracer, operator, args, kwargs, result))
    if args[0] in tracer.hollow:
        tracer.hollow[result[0]] = True
    return result


def _dropped_out(function: Callable[..., Tensor], args: Any, kwargs: dict[str, Any]) -> Tensor:
    """A dropout of whole channels: in training every channel times a chance of its own, here 1."""
    is_training = function is not torch.nn.functional.feature_alpha_dropout
    is_training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", is_training))
    if not is_training:
        return function(*args, **kwargs)
    data = args[0] if args else kwargs["input"]
    chances = torch.ones_like(data)
    # What alpha dropout puts in the place of a channel is not zero.
    shift = chances if "alpha" in function.__name__ else 0
    return data.mul_(chances).add_(shift) if kwargs.get("inplace") else data * chances + shift


@contextmanager
def _without_fused_kernels() -> Iterator[None]:
    # torch.backends.mkldnn.flags warns about devices that aren't there.
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)
