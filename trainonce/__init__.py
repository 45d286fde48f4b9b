"""Train a PyTorch model once and hold a small one that computes the same."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainonce import cost, policies
    from trainonce.artifact import BadArtifact, WrongModel, load, save
    from trainonce.attachment import attach
    from trainonce.budget import UnreachableBudget
    from trainonce.channels import ChannelGroup, Partition, WrongPlan
    from trainonce.convergence import GradientMapping
    from trainonce.gates import BadLoss
    from trainonce.inspection import UnusableModel, cut, inspect
    from trainonce.plan import Plan
    from trainonce.projection import AdamMetric, HalfSpace, Proximal
    from trainonce.pruner import Pruner, PrunerError, ShortRun
    from trainonce.schedule import Phase, Schedule, Strength
    from trainonce.surgery import silence
    from trainonce.tracing.rules import rule
    from trainonce.training import BadSetting, Diverged, Interrupted, Result, Settings, fit

__version__ = "0.1.0"

__all__ = [
    "AdamMetric",
    "BadArtifact",
    "BadLoss",
    "BadSetting",
    "ChannelGroup",
    "Diverged",
    "GradientMapping",
    "HalfSpace",
    "Interrupted",
    "Partition",
    "Phase",
    "Plan",
    "Proximal",
    "Pruner",
    "PrunerError",
    "Result",
    "Schedule",
    "Settings",
    "ShortRun",
    "Strength",
    "UnreachableBudget",
    "UnusableModel",
    "WrongModel",
    "WrongPlan",
    "attach",
    "cost",
    "cut",
    "fit",
    "inspect",
    "load",
    "policies",
    "rule",
    "save",
    "silence",
]

_HOMES = {
    "artifact": "BadArtifact WrongModel load save",
    "attachment": "attach",
    "budget": "UnreachableBudget",
    "channels": "ChannelGroup Partition WrongPlan",
    "convergence": "GradientMapping",
    "gates": "BadLoss",
    "inspection": "UnusableModel cut inspect",
    "plan": "Plan",
    "projection": "AdamMetric HalfSpace Proximal",
    "pruner": "Pruner PrunerError ShortRun",
    "schedule": "Phase Schedule Strength",
    "surgery": "silence",
    "tracing.rules": "rule",
    "training": "BadSetting Diverged Interrupted Result Settings fit",
}
"""Where each public name but the modules is defined.

Nothing is loaded before it is used: torch takes seconds to load, in which a command can be stopped.
"""


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names.split()), "")
    if not home and (name.startswith("_") or importlib.util.find_spec(f"trainonce.{name}") is None):
        raise AttributeError(f"module 'trainonce' has no attribute {name!r}")
    module = importlib.import_module(f"trainonce.{home or name}")
    globals()[name] = found = getattr(module, name) if home else module
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
