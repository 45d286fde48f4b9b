"""Train a PyTorch model once and ship a small one that computes the same."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainonce import errors
    from trainonce.errors import (
        ArtifactError,
        BudgetError,
        CheckpointError,
        DataError,
        DivergedError,
        LossError,
        ModelError,
        ModelMismatchError,
        PlanError,
        PrunerError,
        RunInterruptedError,
        SettingError,
        TrainonceError,
    )
    from trainonce.pruning import policies
    from trainonce.pruning.attachment import attach
    from trainonce.pruning.method import Method
    from trainonce.pruning.pruner import Pruner
    from trainonce.pruning.pulling.projection import HalfSpace, Proximal
    from trainonce.pruning.restoring import restore
    from trainonce.pruning.schedule import Phase, Schedule, ShortRunWarning, Strength
    from trainonce.runs import loggers
    from trainonce.storage.artifact.about import About, Preprocessing, about_of
    from trainonce.structure import cost
    from trainonce.structure.channels import ChannelGroup
    from trainonce.structure.partition import Partition
    from trainonce.structure.plan import Plan
    from trainonce.surgery.inspection import cut, inspect
    from trainonce.surgery.slicing import silence
    from trainonce.teaching.teacher import Teacher
    from trainonce.tracing.operators.registry import rule
    from trainonce.training import Callback, Result, RunState, Settings, fit
    from trainonce.zoo.artifacts import load, save

__version__ = "0.2.0"

__all__ = [
    "About",
    "ArtifactError",
    "BudgetError",
    "Callback",
    "ChannelGroup",
    "CheckpointError",
    "DataError",
    "DivergedError",
    "HalfSpace",
    "LossError",
    "Method",
    "ModelError",
    "ModelMismatchError",
    "Partition",
    "Phase",
    "Plan",
    "PlanError",
    "Preprocessing",
    "Proximal",
    "Pruner",
    "PrunerError",
    "Result",
    "RunInterruptedError",
    "RunState",
    "Schedule",
    "SettingError",
    "Settings",
    "ShortRunWarning",
    "Strength",
    "Teacher",
    "TrainonceError",
    "about_of",
    "attach",
    "cost",
    "cut",
    "errors",
    "fit",
    "inspect",
    "load",
    "loggers",
    "policies",
    "restore",
    "rule",
    "save",
    "silence",
]

_HOMES = {
    "pruning.attachment": "attach",
    "pruning.method": "Method",
    "pruning.pruner": "Pruner",
    "pruning.pulling.projection": "HalfSpace Proximal",
    "pruning.restoring": "restore",
    "pruning.schedule": "Phase Schedule ShortRunWarning Strength",
    "storage.artifact.about": "About Preprocessing about_of",
    "structure.channels": "ChannelGroup",
    "structure.partition": "Partition",
    "structure.plan": "Plan",
    "surgery.inspection": "cut inspect",
    "surgery.slicing": "silence",
    "teaching.teacher": "Teacher",
    "tracing.operators.registry": "rule",
    "training": "Callback Result RunState Settings fit",
    "zoo.artifacts": "load save",
}
"""Where each public name is defined; errors are all in `errors`.

Nothing is loaded before it is used: torch takes seconds to load, in which a command can be stopped.
"""

_MODULES = {"cost": "structure.cost", "loggers": "runs.loggers", "policies": "pruning.policies"}
"""Public modules that live in a room."""


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names.split()), "")
    if not home and name in __all__ and name.endswith("Error"):
        home = "errors"
    module = home or _MODULES.get(name, name)
    if name.startswith("_") or importlib.util.find_spec(f"trainonce.{module}") is None:
        raise AttributeError(f"module 'trainonce' has no attribute {name!r}")
    found = importlib.import_module(f"trainonce.{module}")
    globals()[name] = found = getattr(found, name) if home else found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
