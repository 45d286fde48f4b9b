"""Where a model comes from: takes `timm:NAME` or `module.path:callable`, tells code from a library's name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIBRARIES = ("cifar", "torchvision", "timm", "transformers")
"""Each has a module `from_NAME` in the zoo, which takes names of that library's own list only."""


def names_code(source: str) -> bool:
    """Whether building this model imports a module that the name chooses, and so runs what is in it."""
    return source.partition(":")[0] not in LIBRARIES


def how_to_resume(folder: Path, config: Mapping[str, Any]) -> str:
    """What to call so that the run in a folder goes on; `config` is the run's own."""
    model = config.get("model")
    if not isinstance(model, str):
        # Only `fit` writes no model down: it was given one.
        return f"trainonce.fit(..., out={str(folder)!r}, resume=True)"
    trust = " --trust-code" if names_code(model) else ""
    return f"trainonce train --resume {shlex.quote(str(folder))}{trust}"
