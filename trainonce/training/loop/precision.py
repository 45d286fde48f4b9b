"""Mixed precision: autocast and gradient scaling for a device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from trainonce.errors import SettingError


@dataclass(frozen=True, slots=True)
class Precision:
    """The dtype of autocast; weights stay in float32."""

    device_type: str
    dtype: torch.dtype | None
    """None: no autocast."""

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which operators run in this dtype."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device_type, dtype=self.dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """A gradient scaler, which is disabled for all but float16."""
        return torch.amp.GradScaler(self.device_type, enabled=self.dtype is torch.float16)


def choose_precision(device: torch.device, *, amp: bool, amp_dtype: str) -> Precision:
    """The precision of the settings; SettingError if the device doesn't support it."""
    if not amp:
        return Precision(device.type, None)
    dtype = torch.bfloat16 if amp_dtype == "bfloat16" else torch.float16
    if device.type == "cpu" and dtype is torch.float16:
        raise SettingError("amp_dtype float16 needs a GPU. Use bfloat16 on a CPU, or turn amp off.")
    if device.type == "cpu" and not _cpu_computes_bfloat16():
        raise SettingError("amp needs a CPU with AVX-512, and this one has none. Turn amp off.")
    return Precision(device.type, dtype)


def _cpu_computes_bfloat16() -> bool:
    # On other CPUs, mkldnn's kernels crash with an illegal instruction.
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
