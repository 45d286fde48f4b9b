"""Rules for Fourier transforms, complex numbers as pairs of real ones, and sequences of several lengths."""

from __future__ import annotations

from trainonce.tracing.operators.movement import moved
from trainonce.tracing.operators.registry import Call, Layers, aten, rule


@rule(aten._fft_r2c, aten._fft_c2r, aten._fft_c2c)
def fourier(call: Call) -> Layers:
    """The transformed axes are kept: every frequency is a sum over all of them. The others pass."""
    data = call.args[0]
    axes = [axis % data.dim() for axis in call.args[1]]
    reason = f"the Fourier transform in {call.where} mixes all of it"
    return call.tie_along(call.layers(data), axes, reason)


@rule(aten._nested_tensor_from_mask_left_aligned)
def left_aligned(call: Call) -> Layers:
    """A question about a mask; of the data it looks at sizes alone."""
    call.keep(call.layers(call.args[1]), f"{call.words} in {call.where} decides by it")
    return ()


@rule(aten.view_as_real)
def as_pairs(call: Call) -> Layers:
    """One axis more, of real and imaginary parts."""
    return moved(call.layers(call.args[0]), lambda ids: ids.unsqueeze(-1))


@rule(aten.view_as_complex)
def as_complex(call: Call) -> Layers:
    """The last axis holds real and imaginary parts."""
    data = call.args[0]
    reason = f"{call.words} in {call.where} pairs real with imaginary parts"
    layers = call.tie_along(call.layers(data), (data.dim() - 1,), reason)
    return moved(layers, lambda ids: ids.squeeze(-1))
