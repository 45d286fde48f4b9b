"""What `attach` chooses with if nothing else is asked for."""

from __future__ import annotations

from trainonce.policies.anchored import AnchoredController
from trainonce.policies.capacity import Capacity
from trainonce.policies.policy import Policy


def default_policy() -> Policy:
    """A new one for each run: policies remember."""
    return AnchoredController(prior=Capacity())
