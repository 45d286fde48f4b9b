"""Train a PyTorch model once and hold a small one that computes the same."""

from trainonce import cost
from trainonce.artifact import BadArtifact, WrongModel, load, save
from trainonce.channels import ChannelGroup, Partition, WrongPlan
from trainonce.inspection import UnusableModel, cut, inspect
from trainonce.plan import Plan
from trainonce.surgery import silence
from trainonce.tracing.rules import rule

__version__ = "0.1.0"

__all__ = [
    "BadArtifact",
    "ChannelGroup",
    "Partition",
    "Plan",
    "UnusableModel",
    "WrongModel",
    "WrongPlan",
    "cost",
    "cut",
    "inspect",
    "load",
    "rule",
    "save",
    "silence",
]
