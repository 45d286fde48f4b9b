"""Names of models: which are code, and how to resume a run of one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIBRARIES = ("cifar", "torchvision", "timm", "transformers")
"""Each has a module `from_NAME` here, which accepts names from that library's own list only."""

_ON_HUB = re.compile(r"transformers:[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


def names_code(source: str) -> bool:
    """Whether building this model imports a module that its name chooses."""
    return source.partition(":")[0] not in LIBRARIES


def on_hub(source: str) -> bool:
    """Whether this is a model of the Hugging Face hub, or a folder: `transformers:OWNER/NAME`."""
    return _ON_HUB.fullmatch(source) is not None


def needs_trust(source: str) -> bool:
    """Whether building this model runs code or reads files that its name chooses."""
    return names_code(source) or on_hub(source)


def how_to_resume(folder: Path, config: Mapping[str, Any]) -> str:
    """The command or call that resumes the run in a folder with this `config`."""
    model = config.get("model")
    if not isinstance(model, str):
        # Runs of `fit` record no model.
        return f"trainonce.fit(..., out={str(folder)!r}, resume=True)"
    trust = " --trust-code" if needs_trust(model) else ""
    return f"trainonce train --resume {shlex.quote(str(folder))}{trust}"
