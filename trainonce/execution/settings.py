"""Configurations that modules hold: plain objects with numbers in them, often shared by all modules."""

from __future__ import annotations

import argparse
import dataclasses
import types
from typing import Any

from torch import nn


def holds_settings(held: Any) -> bool:
    """Whether something that a module holds is a configuration: a dataclass, a namespace, a `...Config`."""
    if isinstance(held, nn.Module | type) or not hasattr(held, "__dict__"):
        return False
    return (
        isinstance(held, types.SimpleNamespace | argparse.Namespace)
        or dataclasses.is_dataclass(held)
        or type(held).__name__.endswith("Config")
    )
