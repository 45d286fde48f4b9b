"""Ways to choose which units stay; pass one to `trainonce.attach(policy=...)`."""

from trainonce.policies.anchored import AnchoredController
from trainonce.policies.capacity import Capacity
from trainonce.policies.controller import Controller, FreeLogits, RecurrentLogits
from trainonce.policies.geometric_median import GeometricMedian
from trainonce.policies.norms import FilterNorm, NormScale, Uniform
from trainonce.policies.oto import Gradual, PenaliseAll, StaticSalience
from trainonce.policies.policy import Policy, Search
from trainonce.policies.random_choice import RandomChoice
from trainonce.policies.taylor import Taylor

__all__ = [
    "AnchoredController",
    "Capacity",
    "Controller",
    "FilterNorm",
    "FreeLogits",
    "GeometricMedian",
    "Gradual",
    "NormScale",
    "PenaliseAll",
    "Policy",
    "RandomChoice",
    "RecurrentLogits",
    "Search",
    "StaticSalience",
    "Taylor",
    "Uniform",
]
