"""The number format of a run.

Takes settings and a device, gives the autocast region and the gradient scaler.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from trainonce.errors import SettingError


@dataclass(frozen=True, slots=True)
class Precision:
    """Which format matrix products are computed in; weights stay in float32."""

    device_type: str
    dtype: torch.dtype | None
    """None is float32 throughout."""

    def autocast(self) -> AbstractContextManager[object]:
        """The region in which operators run in the format."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device_type, dtype=self.dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """Scales the loss where small gradients would vanish, which only float16 needs.

        Does nothing otherwise.
        """
        return torch.amp.GradScaler(self.device_type, enabled=self.dtype is torch.float16)


def choose_precision(device: torch.device, *, amp: bool, amp_dtype: str) -> Precision:
    """The format that is asked for, if the device can compute in it."""
    if not amp:
        return Precision(device.type, None)
    dtype = torch.bfloat16 if amp_dtype == "bfloat16" else torch.float16
    if device.type == "cpu" and dtype is torch.float16:
        raise SettingError("amp_dtype float16 is for GPUs. Take bfloat16 on a CPU, or leave amp out.")
    if device.type == "cpu" and not _cpu_computes_bfloat16():
        raise SettingError("amp needs a CPU with AVX-512, and this one has none. Leave amp out.")
    return Precision(device.type, dtype)


def _cpu_computes_bfloat16() -> bool:
    # Elsewhere mkldnn's kernels end the process with an illegal instruction.
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
