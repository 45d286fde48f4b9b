"""A small model whose training is over: factors go into its weights, and its configuration says its sizes.

It is then an ordinary model of its kind: whatever builds one from the configuration can load its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor, nn

from trainonce.structure.settings import SettingChange
from trainonce.surgery.norms import fold_norms, folded, weight_scales
from trainonce.surgery.settings import change_settings
from trainonce.surgery.slicing import PLANS, plans_of

Scales = dict[str, Callable[[Tensor], Tensor]]
"""For each parameter that is scaled whenever its norm runs, the weight that is scaled for good."""


def scales_of(model: nn.Module) -> Scales:
    """What `settle` will do to weights."""
    return {
        f"{path}.{hook.name}".lstrip("."): hook.scaled
        for path, module in model.named_modules()
        for hook in weight_scales(module)
    }


def settle(model: nn.Module, changes: Sequence[SettingChange]) -> None:
    """Put factors into the weights, and these numbers into the configuration."""
    plans = [replace(plan, norms=folded(plan.norms)) for plan in plans_of(model)]
    fold_norms(model)
    change_settings(model, changes)
    if plans:
        plans[-1] = replace(plans[-1], settings=tuple(changes))
        model.__dict__[PLANS] = tuple(plan.to_json() for plan in plans)
