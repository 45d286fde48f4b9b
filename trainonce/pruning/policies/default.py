"""The policy that `attach` uses by default."""

from __future__ import annotations

from trainonce.pruning.policies.anchored import AnchoredController
from trainonce.pruning.policies.capacity import Capacity
from trainonce.pruning.policies.policy import Policy

BETWEEN_LAYERS = 0.1
"""Layer widths move slowly: in short runs the prior sets them, in long ones the controller."""


def default_policy() -> Policy:
    """A new default policy; policies have state, so each run needs its own."""
    return AnchoredController(prior=Capacity(), between_layers=BETWEEN_LAYERS)
