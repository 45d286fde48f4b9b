"""What dropped channels did for the layers that read them is handed over to those that stay.

Takes a model, a plan and one call of the model; changes weights in place so that dropping costs less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.execution.forward import copied, output_tensors
from trainonce.execution.restoring import buffers_kept, drop_caches, modes_kept
from trainonce.pruning.distributed import gradient_exchange_paused, same_everywhere
from trainonce.pruning.gating.gates import gradients_aside, untouched
from trainonce.pruning.learning import parameters_of
from trainonce.pruning.regression import bias_through, channel_map, weight_through
from trainonce.structure.plan import Plan
from trainonce.surgery.slicing import silence

MOST_SAMPLES = 8192
"""Of one layer's input: places in images, tokens in texts."""

MOST_NUMBERS = 2**27
"""Of all layers' inputs together: half a gigabyte."""

LEAST_SAMPLES = 2
"""For each channel that stays; with fewer, the solution would be noise."""

MOST_CHANNELS = 4096
"""The solution takes time with the cube of what stays; wider layers are left as they are."""

_READERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What a model was called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def heard_call(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor] | None
) -> Call | None:
    """The first call of the model when the loss is computed; None if there is none.

    The model is left as it was.
    """
    if loss is None:
        return None
    calls: list[Call] = []

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not calls:
            calls.append(Call(copied(args), copied(kwargs)))

    with (
        untouched(model),
        gradient_exchange_paused(model),
        gradients_aside(parameters_of(model, optimizer)) as watched,
    ):
        hook = model.register_forward_pre_hook(note, with_kwargs=True)
        try:
            # Compiled code doesn't see hooks that are newer than itself.
            with torch.enable_grad(), torch.compiler.set_stance("force_eager"):
                watched(loss)()
        finally:
            hook.remove()
    return calls[0] if calls else None


def hand_over(model: nn.Module, plan: Plan, call: Call, trained: Mapping[str, nn.Parameter]) -> bool:
    """Silence what the plan drops, and let the layers that read it make up for it; whether that helped.

    Layer by layer, in the order in which the model calls them, the weights that read channels W become W A:
    A is the map from what the silenced model now gives the layer to what the layer read before, by least
    squares on one batch. Errors of earlier layers are made up for as well as they can be.

    Channel pruning by reconstruction is from He et al., "Channel pruning for accelerating very deep neural
    networks", and Luo et al., "ThiNet", both ICCV 2017; here one forward pass does all layers.

    Nothing changes, and False is returned, unless the outputs on the batch are nearer to those before than
    without the new weights.

    Args:
        model: The model that the plan is for.
        plan: What goes.
        call: One batch.
        trained: The parameters that may change.
    """
    readers = _find_readers(model, plan, trained)
    names = {cut.tensor for cut in plan.cuts if cut.silenced} | {
        name for reader in readers for name in reader.names
    }
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    before = {name: tensors[name].detach().clone() for name in sorted(names)}
    helps = False
    try:
        with torch.no_grad(), modes_kept(model), buffers_kept(model):
            model.eval()
            helps = bool(readers) and _solve(model, plan, call, readers)
    except Exception:
        # Whatever a stranger's model raises when it runs without a loss: it trains on as before.
        helps = False
    except BaseException:
        _put_back(model, tensors, before)
        raise
    if not bool(same_everywhere(torch.tensor(float(helps)))):
        _put_back(model, tensors, before)
        return False
    _put_back(model, tensors, {name: same_everywhere(tensors[name].detach()) for name in before})
    return True


@torch.no_grad()
def _put_back(model: nn.Module, tensors: Mapping[str, Tensor], contents: Mapping[str, Tensor]) -> None:
    for name, content in contents.items():
        tensors[name].data.copy_(content)
    drop_caches(model)


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """A layer that reads channels some of which go."""

    name: str
    module: nn.Module
    kept_K: Tensor
    has_bias: bool
    """Whether there is a bias that may change."""

    @property
    def names(self) -> list[str]:
        return [f"{self.name}.weight", *([f"{self.name}.bias"] if self.has_bias else [])]

    @property
    def weight(self) -> nn.Parameter:
        return self.module._parameters["weight"]  # type: ignore[return-value]

    def samples(self, args: tuple[Any, ...], kwargs: dict[str, Any], most: int) -> Tensor | None:
        """What the layer reads: channels at random places; None if it is too little."""
        inputs = args[0] if args else next(iter(kwargs.values()))
        rows = inputs.detach().movedim(-(self.weight.dim() - 1), -1)
        rows = rows.reshape(-1, rows.shape[-1])
        if min(len(rows), most) < LEAST_SAMPLES * len(self.kept_K):
            return None
        if len(rows) > most:
            places = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:most]
            rows = rows[places.to(rows.device)]
        return rows.float().clone()

    def read_through(self, before_NC: Tensor, now_NC: Tensor) -> None:
        """Change weight and bias so that what is read now gives what was given before."""
        kept_K = self.kept_K.to(now_NC.device)
        map_CK, shift_C = channel_map(before_NC, now_NC[:, kept_K], kept_K, has_bias=self.has_bias)
        if not bool(map_CK.isfinite().all() and shift_C.isfinite().all()):
            return
        if self.has_bias:
            bias: Any = self.module._parameters["bias"]
            bias.data.add_(bias_through(self.weight, shift_C).to(bias))
        moved = weight_through(self.weight, map_CK)
        self.weight.data.zero_()
        self.weight.data.index_copy_(1, kept_K, moved)


def _find_readers(model: nn.Module, plan: Plan, trained: Mapping[str, nn.Parameter]) -> list[_Reader]:
    modules = dict(model.named_modules())
    holders: dict[int, int] = {}
    for module in modules.values():
        for parameter in module._parameters.values():
            if parameter is not None:
                holders[id(parameter)] = holders.get(id(parameter), 0) + 1

    def may_change(name: str, parameter: Any) -> bool:
        if parameter is None or trained.get(name) is not parameter:
            return False
        return parameter.requires_grad and holders[id(parameter)] == 1

    found = []
    written = {(cut.tensor, cut.axis) for cut in plan.cuts if cut.silenced}
    for cut in plan.cuts:
        name, _, leaf = cut.tensor.rpartition(".")
        module = modules.get(name)
        if (
            leaf == "weight"
            and cut.axis == 1
            and (cut.tensor, 1) not in written
            and isinstance(module, _READERS)
            and getattr(module, "groups", 1) == 1
            and len(cut.kept) <= MOST_CHANNELS
            and may_change(cut.tensor, module._parameters.get("weight"))
        ):
            has_bias = may_change(f"{name}.bias", module._parameters.get("bias"))
            found.append(_Reader(name, module, torch.tensor(cut.kept), has_bias))
    return found


def _solve(model: nn.Module, plan: Plan, call: Call, readers: list[_Reader]) -> bool:
    most = min(MOST_SAMPLES, MOST_NUMBERS // sum(reader.weight.shape[1] for reader in readers))
    read: dict[str, list[Tensor | None]] = {reader.name: [] for reader in readers}

    def note(reader: _Reader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        read[reader.name].append(reader.samples(args, kwargs, most) if not read[reader.name] else None)

    def make_up(reader: _Reader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        before, now = read[reader.name], reader.samples(args, kwargs, most)
        # A layer that runs several times, or on other samples than before, is left as it is.
        if len(before) == 1 and before[0] is not None and now is not None and before[0].shape == now.shape:
            reader.read_through(before[0], now)

    with _hooks(readers, note):
        wanted = _outputs(model, call)
    silence(model, plan)
    plain = _distance(wanted, _outputs(model, call))
    with _hooks(readers, make_up):
        _outputs(model, call)
    # Writers of dropped channels are zero still; what reads them is now zero, too.
    return _distance(wanted, _outputs(model, call)) < plain


@contextmanager
def _hooks(
    readers: list[_Reader], act: Callable[[_Reader, tuple[Any, ...], dict[str, Any]], None]
) -> Iterator[None]:
    """A context in which `act` is called before each reader runs."""
    hooks = []
    for reader in readers:

        def before(_: nn.Module, args: Any, kwargs: Any, *, reader: _Reader = reader) -> None:
            act(reader, args, kwargs)

        hooks.append(reader.module.register_forward_pre_hook(before, with_kwargs=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _outputs(model: nn.Module, call: Call) -> list[Tensor]:
    # The forward itself: compiled code would not call the hooks.
    with torch.compiler.set_stance("force_eager"):
        outputs = model(*copied(call.args), **copied(call.kwargs))
    return [output.detach() for output in output_tensors(outputs) if output.is_floating_point()]


def _distance(wanted: list[Tensor], found: list[Tensor]) -> float:
    """The squared distance of all outputs; infinite if they can't be compared."""
    if [output.shape for output in wanted] != [output.shape for output in found]:
        return float("inf")
    total = sum(
        float((one.double() - other.double()).square().sum())
        for one, other in zip(wanted, found, strict=True)
    )
    return total if total == total else float("inf")
