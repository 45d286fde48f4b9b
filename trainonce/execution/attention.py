"""`nn.MultiheadAttention` with any number of heads: the same module, computed by a graph of torch.fx.

torch's function demands that its heads make up the model's width. The graph reads the weights as they are:
query, key and value have `num_heads * head_dim` features beside an `embed_dim` of any size. Signature, masks,
weights, dropout and the names of the parameters are torch's.

A graph has no branches, so whatever depends on the inputs of a call is looked up in `ways`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import is_, not_, truth
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from trainonce.execution.straight_code import as_graph, give_forward, given_forward, take_forward_back

# In a graph these are calls, not questions about what stands for the input.
fx.wrap("is_")
fx.wrap("not_")
fx.wrap("truth")

_apart: Any = torch._nested_tensor_from_mask  # pyright: ignore[reportPrivateImportUsage]

Ways = Mapping[str, Mapping[Any, Any]]


def can_be_freed(module: nn.Module) -> bool:
    """Whether a module is torch's attention, computed by torch's code or by this graph."""
    own = getattr(type(module), "forward", None) is nn.MultiheadAttention.forward
    return own and ("forward" not in vars(module) or are_heads_free(module))


def are_heads_free(module: nn.Module) -> bool:
    """Whether the graph computes this module."""
    return isinstance(module, nn.MultiheadAttention) and given_forward(module) is not None


def free_heads(module: Any, **ways: Mapping[Any, Any]) -> None:
    """Let the graph compute a module; `ways` replace those of the graph with the same names."""
    graph, known = _graphs(module.bias_k is not None, module.add_zero_attn, module.in_proj_weight is None)
    give_forward(module, graph, {**known, **ways})
    # Encoder layers have a fast path that reads the weights past `forward`, unless they hear this.
    module._qkv_same_embed_dim = False


def bind_heads(module: Any) -> None:
    """Let torch's code compute a module again, whose shapes are those it was made with."""
    take_forward_back(module)
    module._qkv_same_embed_dim = module.in_proj_weight is not None


@lru_cache(maxsize=8)
def _graphs(has_bias: bool, has_zero: bool, is_separate: bool) -> tuple[fx.GraphModule, Ways]:
    """The graph for attention with these settings, and the ways that it chooses from."""
    project = _project_each if is_separate else _project_packed
    both = ((same, also) for same in (False, True) for also in (False, True))
    more = {(False, False): _same, (True, False): _biases, (False, True): _zeros, (True, True): _both}
    ways: dict[str, dict[Any, Callable[..., Any]]] = {
        "input": {False: _attend, True: _attend_nested},
        "projection": dict.fromkeys(both, project)
        | ({} if is_separate else {(True, True): _project_at_once}),
        "biases": {False: _three_biases, True: _no_biases},
        "more": {True: more[has_bias, has_zero]},
        "keys": {True: (_same, _for_one_more, _for_two_more)[has_bias + has_zero]},
        "mask": {
            (False, False, False): _both_masks,
            (False, True, False): _padding,
            (True, False, False): _mask,
            (True, True, False): _no_mask,
            (True, False, True): _no_mask,
        },
        "rank": {2: _same, 3: _per_head},
        "floating": {False: _as_numbers, True: _same},
        "kernel": {False: _fused, True: _weighted},
        "bias": {False: _plus, True: _same},
        "average": {False: _same, True: _mean_of_heads},
    }
    made: dict[Callable[..., Any], fx.GraphModule] = {}
    graphs = {
        name: {key: made.setdefault(function, as_graph(function)) for key, function in choices.items()}
        for name, choices in ways.items()
    }
    return as_graph(_attention), graphs


def _attention(
    module: Any,
    ways: Any,
    query: Any,
    key: Any,
    value: Any,
    key_padding_mask: Any = None,
    need_weights: Any = True,
    attn_mask: Any = None,
    average_attn_weights: Any = True,
    is_causal: Any = False,
) -> Any:
    chosen = (truth(need_weights), attn_mask, truth(average_attn_weights), truth(is_causal))
    return ways["input"][query.is_nested].forward(module, ways, query, key, value, key_padding_mask, *chosen)


def _attend(
    module: Any,
    ways: Any,
    query: Any,
    key: Any,
    value: Any,
    padding: Any,
    need_weights: Any,
    mask: Any,
    average: Any,
    is_causal: Any,
) -> Any:
    torch._assert(not_(is_causal & is_(mask, None)), "Need attn_mask if specifying the is_causal hint.")
    projected = ways["projection"][is_(query, key), is_(key, value)].forward(module, ways, query, key, value)
    sizes = (module.num_heads, module.head_dim)
    # Where the tokens are beside heads and features: -3 with the batch first or none, else 0.
    place = module.batch_first * -3
    q, k, v = (projected[part].unflatten(-1, sizes).movedim(place, -2) for part in range(3))
    k, v = (
        ways["more"][True].forward(part, module, bias)
        for part, bias in ((k, module.bias_k), (v, module.bias_v))
    )
    causal = is_causal & is_(padding, None) & not_(need_weights)
    bias = ways["mask"][is_(padding, None), is_(mask, None), causal].forward(module, ways, q, padding, mask)
    result = ways["kernel"][need_weights].forward(module, ways, q, k, v, bias, average, causal)
    features = result[0].movedim(-2, place).flatten(-2)
    return F.linear(features, module.out_proj.weight, module.out_proj.bias), result[1]


def _attend_nested(
    module: Any,
    ways: Any,
    query: Any,
    key: Any,
    value: Any,
    padding: Any,
    need_weights: Any,
    mask: Any,
    average: Any,
    is_causal: Any,
) -> Any:
    """Sequences of several lengths, as nn.TransformerEncoder makes of padded ones: padded and masked."""
    padded = query.to_padded_tensor(0.0)
    lengths = query._nested_tensor_size()[:, :1].to(padded.device)
    gone = torch.ones_like(padded[..., 0]).cumsum(-1) > lengths
    result = ways["input"][False].forward(
        module, ways, padded, padded, padded, gone, False, None, False, False
    )
    return _apart(result[0], gone.logical_not(), mask_check=False), None


def _project_at_once(module: Any, ways: Any, query: Any, key: Any, value: Any) -> Any:
    return F.linear(query, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)


def _project_packed(module: Any, ways: Any, query: Any, key: Any, value: Any) -> Any:
    weights = module.in_proj_weight.chunk(3)
    biases = ways["biases"][is_(module.in_proj_bias, None)].forward(module)
    return tuple(F.linear(data, weights[part], biases[part]) for part, data in enumerate((query, key, value)))


def _project_each(module: Any, ways: Any, query: Any, key: Any, value: Any) -> Any:
    weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = ways["biases"][is_(module.in_proj_bias, None)].forward(module)
    return tuple(F.linear(data, weights[part], biases[part]) for part, data in enumerate((query, key, value)))


def _three_biases(module: Any) -> Any:
    return module.in_proj_bias.chunk(3)


def _no_biases(module: Any) -> Any:
    return None, None, None


def _biases(data: Any, module: Any, bias: Any) -> Any:
    """One more key or value: a learned one."""
    token = bias.flatten().unflatten(0, (module.num_heads, module.head_dim)).unsqueeze(1)
    return torch.cat([data, token.expand_as(data[..., :1, :])], dim=-2)


def _zeros(data: Any, module: Any, bias: Any) -> Any:
    """One more key or value: zeros."""
    return F.pad(data, (0, 0, 0, 1))


def _both(data: Any, module: Any, bias: Any) -> Any:
    return _zeros(_biases(data, module, bias), module, bias)


def _no_mask(module: Any, ways: Any, q: Any, padding: Any, mask: Any) -> None:
    return None


def _padding(module: Any, ways: Any, q: Any, padding: Any, mask: Any) -> Any:
    """(batch, keys) as (batch, 1, 1, keys)."""
    numbers = ways["floating"][padding.is_floating_point()].forward(padding, q)
    return ways["keys"][True].forward(numbers.unsqueeze(-2).unsqueeze(-2))


def _mask(module: Any, ways: Any, q: Any, padding: Any, mask: Any) -> Any:
    numbers = ways["floating"][mask.is_floating_point()].forward(mask, q)
    return ways["keys"][True].forward(ways["rank"][mask.dim()].forward(numbers, q))


def _both_masks(module: Any, ways: Any, q: Any, padding: Any, mask: Any) -> Any:
    return _padding(module, ways, q, padding, mask) + _mask(module, ways, q, padding, mask)


def _for_one_more(mask: Any) -> Any:
    """The mask with a zero for a key that is no token: it is seen by all."""
    return F.pad(mask, (0, 1))


def _for_two_more(mask: Any) -> Any:
    return F.pad(mask, (0, 2))


def _as_numbers(mask: Any, q: Any) -> Any:
    """0 where a mask of booleans is False, -inf where it is True."""
    return torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, -math.inf)


def _same(data: Any, *_: Any) -> Any:
    return data


def _plus(scores: Any, bias: Any) -> Any:
    return scores + bias


def _per_head(mask: Any, q: Any) -> Any:
    """(batch * heads, queries, keys) beside (batch, heads, queries, features)."""
    return mask.unflatten(0, q.shape[:-2])


def _fused(module: Any, ways: Any, q: Any, k: Any, v: Any, bias: Any, average: Any, causal: Any) -> Any:
    dropped = module.dropout * module.training
    return F.scaled_dot_product_attention(q, k, v, bias, dropped, causal), None


def _weighted(module: Any, ways: Any, q: Any, k: Any, v: Any, bias: Any, average: Any, causal: Any) -> Any:
    scores = (q * module.head_dim**-0.5) @ k.transpose(-2, -1)
    scores = ways["bias"][is_(bias, None)].forward(scores, bias)
    weights = F.dropout(scores.softmax(-1), module.dropout, module.training)
    return weights @ v, ways["average"][average].forward(weights)


def _mean_of_heads(weights: Any) -> Any:
    return weights.mean(-3)
