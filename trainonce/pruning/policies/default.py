"""What `attach` chooses with if nothing else is asked for."""

from __future__ import annotations

from trainonce.pruning.policies.anchored import AnchoredController
from trainonce.pruning.policies.capacity import Capacity
from trainonce.pruning.policies.policy import Policy

BETWEEN_LAYERS = 0.1
"""Whole layers move more slowly than single units.

In short runs the prior says how wide they are, in long ones the controller.
"""


def default_policy() -> Policy:
    """A new one for each run: policies remember."""
    return AnchoredController(prior=Capacity(), between_layers=BETWEEN_LAYERS)
