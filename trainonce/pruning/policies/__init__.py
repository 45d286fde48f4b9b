"""Policies choose which units stay; pass one to `trainonce.attach(policy=...)`."""

from trainonce.pruning.policies.anchored import AnchoredController
from trainonce.pruning.policies.baselines.discrete_gates import DiscreteGates
from trainonce.pruning.policies.baselines.feature_rank import FeatureRank
from trainonce.pruning.policies.baselines.geometric_median import GeometricMedian
from trainonce.pruning.policies.baselines.oto import Gradual, PenalizeAll, StaticSalience
from trainonce.pruning.policies.baselines.random_choice import RandomChoice
from trainonce.pruning.policies.baselines.soft_filter import SoftFilter
from trainonce.pruning.policies.baselines.taylor import Taylor
from trainonce.pruning.policies.capacity import Capacity
from trainonce.pruning.policies.controller import Controller, FreeLogits, RecurrentLogits
from trainonce.pruning.policies.norms import FilterNorm, NormScale, Uniform
from trainonce.pruning.policies.policy import Policy, Search

__all__ = [
    "AnchoredController",
    "Capacity",
    "Controller",
    "DiscreteGates",
    "FeatureRank",
    "FilterNorm",
    "FreeLogits",
    "GeometricMedian",
    "Gradual",
    "NormScale",
    "PenalizeAll",
    "Policy",
    "RandomChoice",
    "RecurrentLogits",
    "Search",
    "SoftFilter",
    "StaticSalience",
    "Taylor",
    "Uniform",
]
