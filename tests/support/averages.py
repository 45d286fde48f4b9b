"""Averages of a model as libraries keep them, and one of somebody's own that caches its tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

from support.digits import convolutional
from trainonce.structure.plan import Plan


class Caching:
    """An average that lists its tensors and the model's once, and then trusts the lists."""

    def __init__(self, model: nn.Module) -> None:
        self.ema = copy.deepcopy(model).eval().requires_grad_(False)
        self.pairs: tuple[list[Tensor], list[Tensor]] | None = None
        self.updates = 0

    def update(self, model: nn.Module) -> None:
        self.updates += 1
        if self.pairs is None:
            mine, theirs = self.ema.state_dict(), model.state_dict()
            names = [name for name in mine if mine[name].is_floating_point()]
            self.pairs = [mine[name] for name in names], [theirs[name] for name in names]
        torch._foreach_lerp_(self.pairs[0], self.pairs[1], 0.1)


def by_timm(version: str) -> Callable[[nn.Module], Any]:
    def make(model: nn.Module) -> Any:
        timm_utils = pytest.importorskip("timm.utils")
        if not hasattr(timm_utils, version):
            pytest.skip(f"this timm has no {version}")
        return getattr(timm_utils, version)(model, decay=0.9)

    return make


def by_ultralytics(model: nn.Module) -> Any:
    return pytest.importorskip("ultralytics.utils.torch_utils").ModelEMA(model, decay=0.9, tau=1)


def averaging(**settings: Any) -> Callable[[nn.Module], AveragedModel]:
    return lambda model: AveragedModel(model, **settings)


AVERAGES: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "swa": (averaging(), "module"),
    "ema": (averaging(multi_avg_fn=get_ema_multi_avg_fn(0.9)), "module"),
    "ema with buffers": (averaging(avg_fn=get_ema_avg_fn(0.9), use_buffers=True), "module"),
    "timm 1": (by_timm("ModelEma"), "ema"),
    "timm 2": (by_timm("ModelEmaV2"), "module"),
    "timm 3": (by_timm("ModelEmaV3"), "module"),
    "ultralytics": (by_ultralytics, "ema"),
    "own, with cached tensors": (Caching, "ema"),
}


def narrowed(state: dict[str, Tensor], plan: Plan) -> dict[str, Tensor]:
    """A state dict with only the entries that a plan keeps, by plain indexing."""
    state = dict(state)
    for cut in plan.cuts:
        state[cut.tensor] = state[cut.tensor].index_select(cut.axis, torch.tensor(cut.kept))
    return state


def update(average: Any, model: nn.Module) -> None:
    (average.update_parameters if isinstance(average, AveragedModel) else average.update)(model)


def like(average: Any, place: str, model: nn.Module) -> Any:
    """A new average of the same class, with the same content, that has never seen a cut."""
    fresh = AVERAGES[next(kind for kind in AVERAGES if made_by(kind, average, place))][0](model)
    getattr(fresh, place).load_state_dict(getattr(average, place).state_dict())
    for name in ("n_averaged", "updates", "multi_avg_fn", "avg_fn", "use_buffers"):
        if hasattr(average, name):
            setattr(fresh, name, copy.deepcopy(getattr(average, name)))
    return fresh


def made_by(kind: str, average: Any, place: str) -> bool:
    make, where = AVERAGES[kind]
    try:
        return where == place and type(make(convolutional(2))) is type(average)
    except pytest.skip.Exception:
        return False


def same_update(average: Any, fresh: Any, model: nn.Module, place: str) -> bool:
    """Whether one update moves both to the same numbers; the first is put back afterwards."""
    mine = getattr(average, place)
    saved = copy.deepcopy(mine.state_dict())
    counts = {
        name: copy.deepcopy(getattr(average, name))
        for name in ("n_averaged", "updates")
        if hasattr(average, name)
    }
    update(average, model)
    update(fresh, model)
    theirs = getattr(fresh, place).state_dict()
    found = all(torch.equal(part, theirs[name]) for name, part in mine.state_dict().items())
    with torch.no_grad():
        for name, part in mine.state_dict().items():
            part.copy_(saved[name])
    for name, value in counts.items():
        setattr(average, name, value)
    return found
