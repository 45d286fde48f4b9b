"""Names of models: which are code, and how to resume a run of one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIBRARIES = ("cifar", "torchvision", "timm", "transformers")
"""Each has a module `from_NAME` here, which accepts names from that library's own list only."""


def names_code(source: str) -> bool:
    """Whether building this model imports a module that its name chooses."""
    return source.partition(":")[0] not in LIBRARIES


def how_to_resume(folder: Path, config: Mapping[str, Any]) -> str:
    """The command or call that resumes the run in a folder with this `config`."""
    model = config.get("model")
    if not isinstance(model, str):
        # Runs of `fit` record no model.
        return f"trainonce.fit(..., out={str(folder)!r}, resume=True)"
    trust = " --trust-code" if names_code(model) else ""
    return f"trainonce train --resume {shlex.quote(str(folder))}{trust}"
