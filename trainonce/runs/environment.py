"""Where a run runs: gives the versions and the hardware that its results depend on."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import trainonce


def describe_environment(*, seed: int, world_size: int, device: torch.device) -> dict[str, Any]:
    """Versions and hardware: what another bit may come from."""
    return {
        "python": platform.python_version(),
        "trainonce": trainonce.__version__,
        "torch": torch.__version__,
        **_installed("torchvision", "timm", "transformers", "safetensors"),
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "processes": world_size,
        "seed": seed,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _installed(*names: str) -> dict[str, str]:
    """The versions of those packages that are there."""
    found = {}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
