"""The policy that `attach` uses by default, and the one that adds a controller to it."""

from __future__ import annotations

from trainonce.pruning.policies.anchored import AnchoredController
from trainonce.pruning.policies.capacity import Capacity
from trainonce.pruning.policies.policy import Policy

BETWEEN_LAYERS = 0.1
"""Layer widths move slowly: in short runs the prior sets them, in long ones the controller."""


def default_policy() -> Policy:
    """A new default policy; policies have state, so each run needs its own."""
    return Capacity()


def learned_policy() -> Policy:
    """A new controller that starts from the default policy and learns from the loss."""
    return AnchoredController(prior=Capacity(), between_layers=BETWEEN_LAYERS)
