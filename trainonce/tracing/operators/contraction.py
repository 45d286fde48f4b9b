"""Rules for products that sum over an axis: matrix products, convolutions, attention.

A contraction consumes the labels on the axes it sums over and passes the others on; it is also what costs
multiply-adds. Letters name axes, as in einsum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainonce.tracing.operators.registry import Call, Layers, aten, rule
from trainonce.tracing.state.labels import Layer, align


class Operand:
    """One factor of a contraction.

    Its layers, the letters of its axes, and whether it is computed from weights alone.
    """

    def __init__(self, layers: Sequence[Layer], letters: str, *, is_weight: bool) -> None:
        """An operand whose axes are called `letters`."""
        self.layers = list(layers)
        self.letters = letters
        self.is_weight = is_weight

    def on(self, letter: str) -> list[Layer]:
        """The layers that vary along a letter."""
        return [layer for layer in self.layers if letter in self.spelled(layer)]

    def spelled(self, layer: Layer) -> str:
        """The letters along which a layer varies."""
        return "".join(self.letters[axis] for axis in layer.varying)


def contract(
    call: Call, operands: tuple[Operand, Operand], out: str, sizes: dict[str, int], *, coefficient: int = 1
) -> Layers:
    """The layers of `out` when two operands are multiplied and summed over the letters that `out` lacks.

    It costs `coefficient` multiply-adds for each combination of letters; with 0 no cost is noted.
    """
    summed = [letter for letter in sizes if letter not in out]
    for operand in operands:
        operand.layers = _free_of_mixed(call, operand, summed)
    _note_cost(call, operands, sizes, coefficient)
    for letter in summed:
        _consume(call, operands, letter)
    results: list[Layer] = []
    left, right = operands
    shared = [letter for letter in out if letter in left.letters and letter in right.letters]
    for letter in shared:
        _share(call, operands, letter, sizes[letter])
    merged = set()
    for layer in left.layers:
        partners = [
            other
            for other in right.layers
            if set(left.spelled(layer)) & set(right.spelled(other)) & set(shared)
        ]
        merged |= {id(other) for other in partners}
        results.append(
            _product(call, [_placed(left, layer, out), *(_placed(right, other, out) for other in partners)])
        )
    results += [_placed(right, layer, out) for layer in right.layers if id(layer) not in merged]
    return tuple(results)


def _free_of_mixed(call: Call, operand: Operand, summed: list[str]) -> list[Layer]:
    """A layer that varies along a summed letter and another is tied along the summed one.

    Whole heads, not dimensions.
    """
    layers = []
    for layer in operand.layers:
        letters = operand.spelled(layer)
        inner = [operand.letters.index(letter) for letter in letters if letter in summed]
        if inner and len(inner) < len(letters):
            tied = call.book.tie_along(layer, inner, f"{call.words} in {call.where} sums over part of it")
            layers += [tied] if tied is not None else []
        else:
            layers.append(layer)
    return layers


def _consume(call: Call, operands: tuple[Operand, Operand], letter: str) -> None:
    left, right = operands
    ours, theirs = left.on(letter), right.on(letter)
    left.layers = [layer for layer in left.layers if layer not in ours]
    right.layers = [layer for layer in right.layers if layer not in theirs]
    reason = f"the channels that {call.words} in {call.where} reads can't be cut"
    if not ours or not theirs:
        call.keep([*ours, *theirs], reason)
        return
    ours, theirs = _one_each(call, ours, theirs, reason)
    mine, other = ours[0].ids.flatten(), theirs[0].ids.flatten()
    call.book.tie(mine, other, reason)
    silent = (mine > 0) & (not left.is_weight) | (other > 0) & (not right.is_weight)
    for operand, layer in ((left, ours[0]), (right, theirs[0])):
        if operand.is_weight and not bool(silent.all()):
            # What comes in is not zero with its writers (a sigmoid, a shared bias): the columns that read it
            # are zeroed as well.
            call.tracer.recording.writers |= layer.origins
            silent = silent | (layer.ids.flatten() > 0)
    call.book.keep(
        mine[~silent],
        f"zeroing its weights leaves a constant that {call.words} in {call.where} would still read",
    )


def _one_each(
    call: Call, ours: list[Layer], theirs: list[Layer], reason: str
) -> tuple[list[Layer], list[Layer]]:
    """Where several layers lie on a summed axis (heads and dims side by side), one of each side meets.

    The others are kept.
    """

    def refines(fine: Layer, coarse: Layer) -> bool:
        inner, outer = (call.book.roots(layer.ids.flatten()).abs() for layer in (fine, coarse))
        return torch.unique(inner * call.book.num_labels + outer).numel() == torch.unique(outer).numel()

    pairs = [(mine, other) for mine in ours for other in theirs]
    mine, other = next(((a, b) for a, b in pairs if refines(a, b) or refines(b, a)), pairs[0])
    call.keep([layer for layer in (*ours, *theirs) if layer is not mine and layer is not other], reason)
    return [mine], [other]


def _share(call: Call, operands: tuple[Operand, Operand], letter: str, size: int) -> None:
    """Along a letter that both operands carry, labels are tied.

    Where one has none, the other's are tied together.
    """
    reason = f"{call.words} in {call.where} pairs it with a tensor whose channels can't be cut"
    left, right = operands
    for mine, other in ((left, right), (right, left)):
        if not other.on(letter):
            axis = mine.letters.index(letter)
            tied = [
                call.book.tie_along(layer, [axis], reason) if letter in mine.spelled(layer) else layer
                for layer in mine.layers
            ]
            mine.layers = [layer for layer in tied if layer is not None]
    everything = "".join(dict.fromkeys(left.letters + right.letters))
    for layer in left.on(letter):
        for partner in right.on(letter):
            call.book.tie(
                _placed(left, layer, everything).ids, _placed(right, partner, everything).ids, reason
            )


def _placed(operand: Operand, layer: Layer, out: str) -> Layer:
    """The layer with its axes where `out` has them; it doesn't vary along letters that `out` lacks."""
    kept = [axis for axis, letter in enumerate(operand.letters) if letter in out]
    ids = layer.ids.reshape([layer.ids.shape[axis] for axis in kept])
    letters = "".join(operand.letters[axis] for axis in kept)
    ids = ids.permute([letters.index(letter) for letter in out if letter in letters])
    shape = iter(ids.shape)
    return layer.with_ids(ids.reshape([next(shape) if letter in letters else 1 for letter in out]))


def _product(call: Call, layers: list[Layer]) -> Layer:
    """A product is zero where any of its factors is."""
    ids, silent = layers[0].ids.abs(), layers[0].ids > 0
    for layer in layers[1:]:
        ids, silent = ids.maximum(layer.ids.abs()), silent | (layer.ids > 0)
    ids = call.book.roots(ids)
    return Layer(ids * (silent.long() * 2 - 1), frozenset().union(*(layer.origins for layer in layers)))


def _note_cost(call: Call, operands: Sequence[Operand], sizes: dict[str, int], coefficient: int) -> None:
    layers = [(layer, operand.letters) for operand in operands for layer in operand.layers]
    if coefficient:
        call.tracer.note_product(coefficient, dict(sizes), tuple(layers))


def _operand(call: Call, tensor: Tensor, letters: str) -> Operand:
    value = call.value(tensor)
    return Operand(call.layers(tensor), letters, is_weight=value is None or value.is_weight)


def added(call: Call, layers: Layers, bias: Any, num_axes: int, scale: Any = 1) -> Layers:
    """Layers after a bias (or any tensor) was added: labels tied, silent only where both are."""
    if not isinstance(bias, Tensor) or scale == 0:
        return layers
    reason = f"{call.words} in {call.where} adds a tensor whose channels can't be cut"
    extent = (1,) * (num_axes - bias.dim()) + tuple(bias.shape)
    terms = [align(layer, num_axes) for layer in call.layers(bias)]
    results: list[Layer] = []
    for layer in layers:
        partners = [term for term in terms if set(term.varying) & set(layer.varying)]
        filled = [
            axis
            for axis in layer.varying
            if extent[axis] > 1 and not any(axis in term.varying for term in partners)
        ]
        current = call.book.tie_along(layer, filled, reason) if filled else layer
        if current is None:
            continue
        silent = (current.ids > 0) & bool(partners)
        for term in partners:
            call.book.tie(current.ids, term.ids, reason)
            silent = silent & (term.ids > 0)
        origins = current.origins.union(*(term.origins for term in partners))
        results.append(Layer(call.book.roots(current.ids).abs() * (silent.long() * 2 - 1), origins))
    for term in terms:
        if not any(set(term.varying) & set(layer.varying) for layer in layers):
            call.keep([term], reason)
    return tuple(results)


@rule(aten.mm, aten.addmm, aten.bmm, aten.baddbmm, counts_cost=True)
def matrix_product(call: Call) -> Layers:
    """(batch) matrix products, with or without something added."""
    left, right = call.args[-2:] if len(call.args) >= 2 else (call.argument("self"), call.argument("mat2"))
    if call.name in ("addmm", "baddbmm"):
        left, right = call.args[1], call.args[2]
    batch = "b" if left.dim() == 3 else ""
    sizes = dict(zip(f"{batch}nk", left.shape, strict=True)) | {"m": right.shape[-1]}
    out = f"{batch}nm"
    layers = contract(
        call, (_operand(call, left, f"{batch}nk"), _operand(call, right, f"{batch}km")), out, sizes
    )
    if call.name in ("addmm", "baddbmm"):
        layers = added(call, layers, call.args[0], len(out), call.argument("beta", 1))
    return layers


@rule(aten.mv, aten.dot)
def vector_product(call: Call) -> Layers:
    """Products with a vector; torch's counter counts no operations for them."""
    left, right = call.args
    letters = "nk" if left.dim() == 2 else "k"
    sizes = dict(zip(letters, left.shape, strict=True))
    operands = (_operand(call, left, letters), _operand(call, right, "k"))
    return contract(call, operands, letters[:-1], sizes, coefficient=0)


@rule(
    aten._scaled_dot_product_flash_attention_for_cpu,
    aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_efficient_attention,
    aten._scaled_dot_product_fused_attention_overrideable,
    aten._scaled_dot_product_cudnn_attention,
    counts_cost=True,
)
def attention(call: Call) -> list[Layers]:
    """Fused attention on (batch, heads, tokens, dim): heads are tied across query, key and value.

    Dims stay whole.
    """
    query, key, value = call.args[:3]
    mask = call.argument("attn_mask", call.argument("attn_bias"))
    reason = f"attention in {call.where} sums over it"
    queries = call.tie_along(call.layers(query), (2, 3), reason)
    keys = _per_head(call, call.tie_along(call.layers(key), (2, 3), reason), query.shape[1] // key.shape[1])
    values = _per_head(
        call, call.tie_along(call.layers(value), (2,), reason), query.shape[1] // value.shape[1]
    )
    batch, heads, tokens, width = query.shape
    sizes = {"b": batch, "h": heads, "n": tokens, "m": key.shape[2], "k": width}
    operands = (Operand(queries, "bhnk", is_weight=False), Operand(keys, "bhmk", is_weight=False))
    scores = contract(call, operands, "bhnm", sizes)
    scores = added(call, scores, mask, 4)
    scores = tuple(layer.not_silent() for layer in scores)
    sizes = {"b": batch, "h": heads, "n": tokens, "m": key.shape[2], "v": value.shape[3]}
    operands = (Operand(scores, "bhnm", is_weight=False), Operand(values, "bhmv", is_weight=False))
    layers = contract(call, operands, "bhnv", sizes)
    return [layers, *([()] * (len(call.result) - 1))] if isinstance(call.result, tuple | list) else [layers]


def _per_head(call: Call, layers: Layers, repeats: int) -> Layers:
    if repeats == 1:
        return layers
    return tuple(
        layer.with_ids(layer.ids.repeat_interleave(repeats, dim=1) if layer.ids.shape[1] > 1 else layer.ids)
        for layer in layers
    )


@rule(aten._sparse_addmm, aten._sparse_mm)
def sparse_product(call: Call) -> Layers:
    """A sparse matrix times a dense one: rows are summed by data, columns pass.

    torch's counter counts no operations for it.
    """
    reason = f"a sparse product in {call.where} sums over it"
    layers = call.tie_along(call.layers(call.argument("mat2", call.args[-1])), (0,), reason)
    if call.name == "_sparse_mm":
        return layers
    return added(call, layers, call.args[0], 2, call.argument("beta", 1))
