"""Train a PyTorch model once and hold a small one that computes the same."""

from trainonce import cost
from trainonce.channels import ChannelGroup, Partition, Plan, WrongPlan
from trainonce.inspection import UnusableModel, cut, inspect
from trainonce.surgery import silence
from trainonce.tracing.rules import rule

__version__ = "0.1.0"

__all__ = ["ChannelGroup", "Partition", "Plan", "UnusableModel", "WrongPlan", "cost", "cut", "inspect", "rule", "silence"]
