"""A LightningModule's step that is no step of the run: afterwards everything is as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torchmetrics import Metric

from trainonce.execution.restoring import attributes_kept, buffers_kept

if TYPE_CHECKING:
    # At run time it may be missing, which the adapter says in its own words.
    from lightning.pytorch import LightningModule

_LOGGING = ("log", "log_dict")


@contextmanager
def without_traces(pl_module: LightningModule) -> Iterator[None]:
    """Inside, nothing is logged; metrics, lists, buffers and what is frozen are put back afterwards.

    A step that is broken off may have frozen a part (`toggle_optimizer`), and one that is made twice would
    count its batch twice.
    """
    trained = [(parameter, parameter.requires_grad) for parameter in pl_module.parameters()]
    restores = [(_contents(module), module) for module in pl_module.modules()]
    with _quiet(pl_module):
        try:
            with buffers_kept(pl_module), attributes_kept(pl_module):
                yield
        finally:
            for parameter, is_trained in trained:
                parameter.requires_grad_(is_trained)
            for contents, module in restores:
                _put_back(module, contents)


def _contents(module: nn.Module) -> dict[str, Any]:
    """What a module's attributes contain where a step writes in place: a metric's tensors, and lists."""
    lists = {name: list(value) for name, value in vars(module).items() if type(value) is list}
    if not isinstance(module, Metric):
        return lists
    states = {name: getattr(module, name) for name in module._defaults}
    return lists | {name: state.clone() for name, state in states.items() if isinstance(state, Tensor)}


def _put_back(module: nn.Module, contents: dict[str, Any]) -> None:
    for name, value in contents.items():
        if isinstance(value, list):
            # The same list, which others may hold, too.
            vars(module)[name][:] = value
        else:
            vars(module)[name] = value


@contextmanager
def _quiet(pl_module: LightningModule) -> Iterator[None]:
    for name in _LOGGING:
        setattr(pl_module, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name in _LOGGING:
            delattr(pl_module, name)
