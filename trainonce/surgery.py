"""Take channels out of a model, in place: every parameter, module and reference stays the same object.

`silence` zeroes what a plan drops; `apply_plan` removes it from parameters, buffers, gradients and optimizer state and
mends the sizes that modules remember.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.channels import WrongPlan
from trainonce.plain_text import quoted, shown
from trainonce.plan import Plan

WAY_OUT = "Use an optimizer whose state has the shapes of its parameters, such as SGD, AdamW or Muon."

PLANS = "_trainonce_plans"
"""The attribute under which a cut model carries the plans that made it, so that it can be saved."""


def silence(model: nn.Module, plan: Plan) -> nn.Module:
    """Zero what the plan drops, in place; afterwards cutting it changes nothing."""
    tensors = check_fits(model, plan)
    with torch.no_grad():
        for cut in plan.cuts:
            if cut.silenced:
                tensor = tensors[cut.tensor]
                dropped = torch.ones(tensor.shape[cut.axis], dtype=torch.bool)
                dropped[list(cut.kept)] = False
                tensor.index_fill_(cut.axis, dropped.nonzero().flatten().to(tensor.device), 0)
    drop_caches(model)
    return model


def apply_plan(model: nn.Module, plan: Plan, *, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Remove what the plan drops, without proving anything; the model is unchanged if the plan doesn't fit."""
    tensors = check_fits(model, plan)
    axes: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for cut in plan.cuts:
        axes.setdefault(cut.tensor, []).append((cut.axis, cut.kept))
    foreign = None if optimizer is None else foreign_state(optimizer, of=[tensors[name] for name in axes])
    if foreign is not None:
        raise WrongPlan(f"{foreign} Or drop it, with optimizer.state.clear().")
    for name, cuts in axes.items():
        tensor = tensors[name]
        if optimizer is not None and tensor in optimizer.state:
            _narrow_state(optimizer.state[tensor], tensor.shape, cuts)
        grad = None if tensor.grad is None else _narrowed(tensor.grad, cuts)
        replace_data(tensor, _narrowed(tensor.data, cuts), grad)
    modules = dict(model.named_modules())
    for change in plan.attributes:
        _set_attribute(modules[change.module], change.name, change.index, change.after)
    for module in modules.values():
        mend_sizes(module)
    drop_caches(model)
    model.__dict__[PLANS] = (*plans_of(model), plan.without_example())


def plans_of(model: nn.Module) -> tuple[Plan, ...]:
    """The plans that were applied to a model, oldest first."""
    return model.__dict__.get(PLANS, ())


def check_fits(model: nn.Module, plan: Plan) -> dict[str, Tensor]:
    """The model's parameters and buffers by name, if the plan was made for these shapes.

    Buffers that no cut touches are free to change, come and go: models hold there what they made for the size of the last input.
    """
    if not isinstance(model, nn.Module) or not isinstance(plan, Plan):
        raise WrongPlan(f"expected a model and a plan, got {type(model).__name__} and {type(plan).__name__}. Make one with trainonce.Plan.")
    tensors: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    free = _buffer_names(model) - {cut.tensor for cut in plan.cuts}
    way_out = "Build the model with the settings the plan was made with, or make a new plan with trainonce.inspect."
    for name, shape in plan.shapes.items():
        if name in free:
            continue
        if name not in tensors:
            raise WrongPlan(
                f"the plan was made for {shown(plan.model)}, which has a tensor {shown(name)}; "
                f"this {type(model).__name__} has none. {way_out}"
            )
        if tuple(tensors[name].shape) != shape:
            raise WrongPlan(
                f"the plan was made for {shown(plan.model)} with {shown(name)} of shape {quoted(shape)}, "
                f"this one has {tuple(tensors[name].shape)}. {way_out}"
            )
    if extra := set(tensors) - set(plan.shapes) - free:
        raise WrongPlan(
            f"the plan was made for {shown(plan.model)}, which has no tensor {min(extra)}; this {type(model).__name__} has one. {way_out}"
        )
    _check_cuts(model, plan)
    return tensors


def _buffer_names(model: nn.Module) -> set[str]:
    """Those that are None at the moment, too; a scripted module can't be asked for its names otherwise."""
    return {f"{prefix}.{name}".lstrip(".") for prefix, module in model.named_modules() for name, _ in module._buffers.items()}


def check_owned(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Refuse an optimizer that trains none of the model's parameters."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise WrongPlan(
            f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}. Give the one that trains this model, or none."
        )
    own = {id(parameter) for parameter in model.parameters()}
    if not any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
        raise WrongPlan(
            f"this {type(optimizer).__name__} trains none of the model's parameters. Give the optimizer that trains this model, or none."
        )


def _check_cuts(model: nn.Module, plan: Plan) -> None:
    if len({(cut.tensor, cut.axis) for cut in plan.cuts}) < len(plan.cuts):
        raise WrongPlan("the plan cuts one axis twice. Save the model again.")
    for cut in plan.cuts:
        shape = plan.shapes.get(cut.tensor)
        if shape is None or cut.axis >= len(shape):
            raise WrongPlan(f"the plan cuts axis {quoted(cut.axis)} of {shown(cut.tensor)}, which doesn't exist. Save the model again.")
        if not cut.kept or cut.kept[-1] >= shape[cut.axis] or sorted(set(cut.kept)) != list(cut.kept):
            raise WrongPlan(
                f"the plan keeps positions of axis {quoted(cut.axis)} of {shown(cut.tensor)} that it doesn't have. Save the model again."
            )
    modules = dict(model.named_modules())
    for change in plan.attributes:
        found = _get_attribute(modules.get(change.module), change.name, change.index)
        if found != change.before:
            raise WrongPlan(
                f"the plan expects {shown(change.module or 'the model')}.{shown(change.name)} to be "
                f"{quoted(change.before)}, it is {found}. "
                f"Build the model with the settings the plan was made with."
            )


def _get_attribute(module: nn.Module | None, name: str, index: int | None) -> Any:
    value = None if module is None else vars(module).get(name)
    if index is None:
        return value if type(value) is int else None
    return value[index] if isinstance(value, tuple | list) and index < len(value) and type(value[index]) is int else None


def _set_attribute(module: nn.Module, name: str, index: int | None, number: int) -> None:
    value = vars(module)[name]
    if index is None:
        vars(module)[name] = number
    elif isinstance(value, list):
        vars(module)[name] = [*value[:index], number, *value[index + 1 :]]
    else:
        vars(module)[name] = type(value)((*value[:index], number, *value[index + 1 :]))


def replace_data(tensor: Tensor, content: Tensor, grad: Tensor | None) -> None:
    """Give a parameter or buffer other content of any shape and dtype; it stays the same object."""
    tensor.grad = None
    if tensor.requires_grad and content.shape != tensor.shape:
        # A graph that is still alive holds a gradient accumulator of the old shape; a change of dtype makes torch forget it.
        other = torch.float32 if tensor.dtype is torch.float64 else torch.float64
        tensor.data = torch.empty(0, dtype=other, device=tensor.device)
    tensor.data = content
    tensor.grad = grad


def _narrowed(tensor: Tensor, cuts: Iterable[tuple[int, tuple[int, ...]]]) -> Tensor:
    channels_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
    for axis, kept in cuts:
        tensor = tensor.index_select(axis, torch.tensor(kept, dtype=torch.long, device=tensor.device))
    return tensor.contiguous(memory_format=torch.channels_last) if channels_last else tensor.contiguous()


def follows_shape(item: Tensor, shape: torch.Size) -> bool:
    """Whether an optimizer's tensor for a parameter of this shape can be cut with it.

    Factored state (Adafactor) has size 1 on the axes that it averages over.
    """
    return item.dim() == len(shape) > 0 and all(a in (1, b) for a, b in zip(item.shape, shape, strict=True))


def foreign_state(optimizer: torch.optim.Optimizer, *, of: Collection[Tensor] | None = None) -> str | None:
    """What an optimizer keeps of some parameters (or all) that can't be cut with them, in words; None if there is nothing."""
    if isinstance(optimizer, torch.optim.LBFGS) and optimizer.state:
        return f"{type(optimizer).__name__} keeps its state in flat vectors over all parameters, which can't be cut. {WAY_OUT}"
    chosen = None if of is None else {id(parameter) for parameter in of}
    for owner, state in optimizer.state.items():
        if chosen is not None and id(owner) not in chosen:
            continue
        shape = owner.shape if isinstance(owner, Tensor) else torch.Size()
        for key, item in state.items() if isinstance(state, Mapping) else [(owner, state)]:
            for tensor in _tensors_in(item):
                if tensor.numel() > 1 and not (tensor is item and follows_shape(tensor, shape)):
                    return (
                        f"{type(optimizer).__name__} keeps {str(key)!r} of shape {tuple(tensor.shape)} for a parameter of shape "
                        f"{tuple(shape)}, which can't be cut with it. {WAY_OUT}"
                    )
    return _foreign_attribute(optimizer, chosen)


def _foreign_attribute(optimizer: torch.optim.Optimizer, chosen: Collection[int] | None) -> str | None:
    """The same of what an optimizer keeps in attributes of its own: copies of parameters, or flat vectors over all of them."""
    parameters = {id(parameter): parameter for group in optimizer.param_groups for parameter in group["params"]}
    shapes = {parameter.shape for number, parameter in parameters.items() if chosen is None or number in chosen}
    length = sum(parameter.numel() for parameter in parameters.values())
    for name, value in vars(optimizer).items():
        for tensor in _tensors_in(value) if name not in ("state", "param_groups") else ():
            if id(tensor) not in parameters and tensor.numel() > 1 and (tensor.shape in shapes or tensor.numel() == length):
                return f"{type(optimizer).__name__} keeps {name!r} of shape {tuple(tensor.shape)}, which can't be cut. {WAY_OUT}"
    return None


def _tensors_in(item: Any) -> Iterator[Tensor]:
    if isinstance(item, Tensor):
        yield item
    elif isinstance(item, Mapping | list | tuple):
        for part in item.values() if isinstance(item, Mapping) else item:
            yield from _tensors_in(part)


def _narrow_state(state: dict[str, Any], shape: torch.Size, cuts: list[tuple[int, tuple[int, ...]]]) -> None:
    for key, item in state.items():
        if isinstance(item, Tensor) and follows_shape(item, shape):
            state[key] = _narrowed(item, [(axis, kept) for axis, kept in cuts if item.shape[axis] == shape[axis]])


SIZES: Mapping[type[nn.Module], tuple[tuple[str, Callable[[Any], int]], ...]] = {
    nn.modules.conv._ConvTransposeNd: (
        ("in_channels", lambda m: m.weight.shape[0]),
        ("out_channels", lambda m: m.weight.shape[1] * m.groups),
    ),
    nn.modules.conv._ConvNd: (("out_channels", lambda m: m.weight.shape[0]), ("in_channels", lambda m: m.weight.shape[1] * m.groups)),
    nn.Linear: (("out_features", lambda m: m.weight.shape[0]), ("in_features", lambda m: m.weight.shape[1])),
    nn.Bilinear: (("out_features", lambda m: m.weight.shape[0]),),
    nn.modules.batchnorm._NormBase: (("num_features", lambda m: (m.weight if m.weight is not None else m.running_mean).shape[0]),),
    nn.GroupNorm: (("num_channels", lambda m: m.weight.shape[0]),),
    nn.Embedding: (("num_embeddings", lambda m: m.weight.shape[0]), ("embedding_dim", lambda m: m.weight.shape[1])),
    nn.EmbeddingBag: (("num_embeddings", lambda m: m.weight.shape[0]), ("embedding_dim", lambda m: m.weight.shape[1])),
    nn.PReLU: (("num_parameters", lambda m: m.weight.shape[0]),),
}
"""What modules of torch remember about their own weights; the first class that fits counts."""


def mend_sizes(module: nn.Module) -> None:
    """Bring the sizes that a module of torch remembers in line with its weights."""
    for kind, sizes in SIZES.items():
        if isinstance(module, kind):
            for name, size in sizes:
                try:
                    found = int(size(module))
                except (AttributeError, IndexError):
                    # Lazy or parametrised modules may hold no such tensor.
                    continue
                if type(vars(module).get(name)) is int and vars(module)[name] != found:
                    vars(module)[name] = found
            return


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Callable[[], None]:
    """A function that puts data, gradients, attributes and optimizer state back as they are now.

    Data that is changed in place afterwards must be a copy: the snapshot holds references.
    """
    data = [(tensor, tensor.data, tensor.grad) for tensor in (*model.parameters(), *model.buffers())]
    ordinary = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    attributes = [(module, dict(vars(module)), dict(module._buffers)) for module in ordinary]
    states = [(state, dict(state)) for state in optimizer.state.values()] if optimizer is not None else []

    def restore() -> None:
        for tensor, content, grad in data:
            replace_data(tensor, content, grad)
        for module, saved, buffers in attributes:
            vars(module).update(saved)
            for name in set(vars(module)) - set(saved):
                del vars(module)[name]
            module._buffers.update(buffers)
        for state, saved in states:
            state.clear()
            state.update(saved)
        drop_caches(model)

    return restore


def drop_caches(model: nn.Module) -> None:
    """Let modules forget what they computed from old weights: those that cache for inference do so when they go to training mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    for module, training in modes:
        module.training = training
