"""Train a PyTorch model once and hold a small one that computes the same."""

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
