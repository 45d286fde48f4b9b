"""Norms with fewer channels that compute what they did: their eps is changed, their weight scaled.

While a model is trained its weights are left alone, so that it takes the same steps as without the cut: the
norm scales its weight whenever it runs. `fold_norms` puts the factor into the weight, for good.

The hooks that do it are pickled as graphs of torch's own, so that a pickle of the model needs nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from trainonce.structure.norms import NormScale
from trainonce.structure.plan import Plan

_NO_CHANGE = 1e-12
"""A factor as close to 1 is what rounding leaves of one that was undone."""


class _Hook:
    """A hook that never changes, so copies of its module share it; a pickle holds a graph in its place."""

    def graph(self) -> fx.GraphModule:
        """What this does, as a module of torch's own."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        return self.graph().__reduce__()

    def __copy__(self) -> _Hook:
        return self

    def __deepcopy__(self, memo: Any) -> _Hook:
        return self


class ScaledWeight(_Hook):
    """Before its module runs: the module finds its weight times a factor; afterwards the weight itself."""

    def __init__(self, name: str, offset: int, factor: float) -> None:
        """For the parameter `name`, to which the module adds `offset`."""
        self.name = name
        self.offset = offset
        self.factor = factor

    def scaled(self, weight: Tensor) -> Tensor:
        """The weight that gives `factor * (offset + weight)`."""
        return weight * self.factor + self.offset * (self.factor - 1.0)

    def unscaled(self, weight: Tensor) -> Tensor:
        """The weight of which `scaled` made this one."""
        return (weight - self.offset * (self.factor - 1.0)) / self.factor

    def __call__(self, module: nn.Module, args: Any) -> None:
        """Put the scaled weight where the module looks first."""
        weight = module._parameters[self.name]
        if weight is not None:
            module.__dict__[self.name] = self.scaled(weight)

    def graph(self) -> fx.GraphModule:
        """The call as a graph."""
        graph = fx.Graph()
        module, _ = graph.placeholder("module"), graph.placeholder("args")
        parameters = graph.call_function(getattr, (module, "_parameters"))
        weight: Any = graph.call_function(operator.getitem, (parameters, self.name))
        weight = graph.call_function(operator.mul, (weight, self.factor))
        weight = graph.call_function(operator.add, (weight, self.offset * (self.factor - 1.0)))
        graph.call_method("update", (_attributes(graph, module), {self.name: weight}))
        return _module_of(graph)


class _WeightBack(_Hook):
    """After its module has run: the weight is the parameter again."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        module.__dict__.pop(self.name, None)

    def graph(self) -> fx.GraphModule:
        """The call as a graph."""
        graph = fx.Graph()
        module, _, _ = (graph.placeholder(name) for name in ("module", "args", "result"))
        graph.call_method("pop", (_attributes(graph, module), self.name, None))
        return _module_of(graph)


def _attributes(graph: fx.Graph, module: fx.Node) -> fx.Node:
    found = graph.call_function(vars, (module,))
    # When it is opened, torch traces the graph again and must not look inside.
    found.meta["is_wrapped"] = True
    return found


def _module_of(graph: fx.Graph) -> fx.GraphModule:
    graph.output(None)
    return fx.GraphModule(nn.Module(), graph)


def _hook_in(found: Any) -> ScaledWeight | _WeightBack | None:
    """The hook of ours that this is, or that this graph from a pickle stands for; None for any other."""
    if isinstance(found, ScaledWeight | _WeightBack):
        return found
    if not isinstance(found, fx.GraphModule):
        return None
    nodes = {node.target: node for node in found.graph.nodes}
    if "pop" in nodes and vars in nodes:
        return _WeightBack(nodes["pop"].args[1])
    if not {"update", vars, operator.getitem, operator.mul, operator.add} <= nodes.keys():
        return None
    factor, shift = nodes[operator.mul].args[1], nodes[operator.add].args[1]
    return ScaledWeight(nodes[operator.getitem].args[1], round(shift / (factor - 1.0)), factor)


def scale_norms(model: nn.Module, plan: Plan) -> None:
    """Change the norms whose channels a plan has cut; their tensors have been cut already."""
    modules = dict(model.named_modules())
    for norm, ratio in _ratios(plan):
        module, weight = modules[norm.module], _weight_of(modules[norm.module], norm)
        eps = vars(module)[norm.eps]
        vars(module)[norm.eps] = (torch.finfo(weight.dtype).eps if eps is None else eps) * ratio
        if norm.is_folded:
            weight.data = _change(norm, ratio).scaled(weight.data)
        else:
            _scale_when_run(module, norm, ratio**norm.power)


def unscale_norms(model: nn.Module, plan: Plan) -> None:
    """Undo `scale_norms`, up to rounding; the tensors may have been widened again."""
    modules = dict(model.named_modules())
    for norm, ratio in _ratios(plan):
        vars(modules[norm.module])[norm.eps] /= ratio
        if not norm.is_folded:
            _scale_when_run(modules[norm.module], norm, ratio**-norm.power)
    unscale_weights(model, plan)


def unscale_weights(model: nn.Module, plan: Plan) -> None:
    """Take factors out of weights again that are in there for good."""
    modules = dict(model.named_modules())
    for norm, ratio in _ratios(plan):
        if norm.is_folded:
            weight = _weight_of(modules[norm.module], norm)
            weight.data = _change(norm, ratio).unscaled(weight.data)


def _ratios(plan: Plan) -> Iterator[tuple[NormScale, float]]:
    """Each norm of a plan, with how many times more channels it had before."""
    left = {(cut.tensor, cut.axis): len(cut.kept) for cut in plan.cuts}
    for norm in plan.norms:
        yield norm, plan.shapes[norm.tensor][norm.axis] / left[norm.tensor, norm.axis]


def _change(norm: NormScale, ratio: float) -> ScaledWeight:
    return ScaledWeight(norm.tensor.rpartition(".")[2], norm.offset, ratio**norm.power)


def fold_norms(model: nn.Module) -> bool:
    """Put factors into weights for good, so that norms are plain again; whether there were any."""
    found = [(module, hook) for module in model.modules() for hook in weight_scales(module)]
    for module, hook in found:
        weight = module._parameters[hook.name]
        if weight is not None:
            with torch.no_grad():
                weight.data = hook.scaled(weight.data)
        _remove(module, hook.name)
    return bool(found)


def folded(norms: Iterable[NormScale]) -> tuple[NormScale, ...]:
    """The same norms, with the factor in the weight."""
    return tuple(replace(norm, is_folded=True) for norm in norms)


def unfolded(norms: Iterable[NormScale]) -> tuple[NormScale, ...]:
    """The same norms, with the factor applied whenever they run."""
    return tuple(replace(norm, is_folded=False) for norm in norms)


def _weight_of(module: nn.Module, norm: NormScale) -> Tensor:
    weight = module._parameters[norm.tensor.rpartition(".")[2]]
    assert weight is not None
    return weight


def weight_scales(module: nn.Module) -> list[ScaledWeight]:
    """The factors that a module gives its weights whenever it runs."""
    found = map(_hook_in, module._forward_pre_hooks.values())
    return [hook for hook in found if isinstance(hook, ScaledWeight)]


def _scale_when_run(module: nn.Module, norm: NormScale, factor: float) -> None:
    name = norm.tensor.rpartition(".")[2]
    known = next((hook for hook in weight_scales(module) if hook.name == name), None)
    if known is not None:
        _remove(module, name)
        factor *= known.factor
        if abs(factor - 1) < _NO_CHANGE:
            return
    # As new dictionaries: `snapshot` keeps the ones that are there.
    for held in ("_forward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called"):
        module.__dict__[held] = vars(module)[held].copy()
    module.register_forward_pre_hook(ScaledWeight(name, norm.offset, factor))
    module.register_forward_hook(_WeightBack(name), always_call=True)


def _remove(module: nn.Module, name: str) -> None:
    """Take away both hooks for this weight."""
    held = vars(module)
    for places in (("_forward_pre_hooks",), ("_forward_hooks", "_forward_hooks_always_called")):
        hooks = {key: _hook_in(found) for key, found in held[places[0]].items()}
        gone = {key for key, hook in hooks.items() if hook is not None and hook.name == name}
        for place in places:
            held[place] = type(held[place])(
                (key, item) for key, item in held[place].items() if key not in gone
            )
