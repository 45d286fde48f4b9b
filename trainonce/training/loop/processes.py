"""Data-parallel processes: rank, world size and the few collectives that a run needs; devices by name."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainonce.errors import SettingError


@dataclass(frozen=True, slots=True)
class Processes:
    """Rank and world size of this process."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and shows progress."""
        return self.rank == 0

    def any_true(self, flags: list[bool]) -> list[bool]:
        """For each flag, whether it is set on any process; the same on all of them."""
        if self.world_size == 1:
            return flags
        shared = _lent(torch.tensor([float(flag) for flag in flags], device=_exchange_device()))
        dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return [bool(flag) for flag in shared.tolist()]

    def summed(self, numbers: list[float]) -> list[float]:
        """Each number summed over all processes."""
        if self.world_size == 1:
            return numbers
        shared = _lent(torch.tensor(numbers, dtype=torch.double, device=_exchange_device()))
        dist.all_reduce(shared)
        return shared.tolist()

    def stacked(self, rows: Tensor, *, first: int, total: int) -> Tensor:
        """The rows of all processes as `total` rows; this one's begin at `first`."""
        if self.world_size == 1:
            return rows
        shared = rows.new_zeros(total, *rows.shape[1:], device=_exchange_device())
        shared[first : first + len(rows)] = rows.to(shared.device)
        dist.all_reduce(_lent(shared))
        return shared.cpu()

    def from_first(self, number: int) -> int:
        """The number on rank 0."""
        if self.world_size == 1:
            return number
        shared = _lent(torch.tensor([number], dtype=torch.long, device=_exchange_device()))
        dist.broadcast(shared, src=0)
        return int(shared)

    def on_first(self, action: Callable[[], None]) -> None:
        """Run `action` on rank 0; a ValueError there ends all processes."""
        refusal: Exception | None = None
        if self.is_first:
            try:
                action()
            except ValueError as error:
                refusal = error
        (is_refused,) = self.any_true([refusal is not None])
        if refusal is not None:
            raise refusal
        if is_refused:
            raise SettingError("rank 0 failed; see its message.")

    def wait(self) -> None:
        """Block until all processes are here."""
        if self.world_size > 1:
            self.any_true([False])

    def agree_on_weights(self, model: nn.Module) -> None:
        """Broadcast parameters and buffers from rank 0."""
        if self.world_size > 1:
            for parameter in model.parameters():
                dist.broadcast(_lent(parameter.detach()), src=0)
        self.agree_on_buffers(model)

    def agree_on_buffers(self, model: nn.Module) -> None:
        """Broadcast buffers from rank 0, as DistributedDataParallel does before a forward pass."""
        if self.world_size > 1:
            for buffer in model.buffers():
                dist.broadcast(_lent(buffer.detach()), src=0)


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """The process group of torchrun, for as long as this lasts; a single process without torchrun."""
    if dist.is_available() and dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size())
        _take_back()
        return
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield Processes()
        return
    _join("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
        _take_back()
    finally:
        dist.destroy_process_group()


def _join(backend: str) -> None:
    store, rank, world_size = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
    # torchrun keeps its store across restarts: without a prefix, new processes would connect to dead ones.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    room = dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=room, rank=rank, world_size=world_size)


# Weak references to the tensors that were handed to the backend's threads. DistributedDataParallel never ends
# those threads, and one that frees its tensor while Python shuts down aborts the process (SIGABRT).
_LENT: list[weakref.ref[Tensor]] = []
_LONGEST_LOAN_SECONDS = 10.0


def _lent(tensor: Tensor) -> Tensor:
    _LENT[:] = [loan for loan in _LENT if loan() is not None]
    _LENT.append(weakref.ref(tensor))
    return tensor


def _take_back() -> None:
    """Wait until the backend's threads have released our tensors."""
    until = time.monotonic() + _LONGEST_LOAN_SECONDS
    while any(loan() is not None for loan in _LENT) and time.monotonic() < until:
        time.sleep(0.001)
    _LENT.clear()


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is the fastest one. Under torchrun, each process gets its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingError(f"device must be auto, cpu, cuda, cuda:NUMBER or mps, got {name!r}.") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise SettingError(f"device must be auto, cpu, cuda, cuda:NUMBER or mps, got {name!r}.")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise SettingError(
                "device is cuda, but torch finds no GPU here. Use cpu, or install torch with CUDA."
            )
        if device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        if device.index >= torch.cuda.device_count():
            raise SettingError(
                f"device is {device}, and there are {torch.cuda.device_count()} GPUs, counted from 0."
            )
        torch.cuda.set_device(device)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise SettingError("device is mps, which is not available here. Use cpu.")
    return device


def _exchange_device() -> torch.device:
    return torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")


def moved(data: Any, device: torch.device, layout: torch.memory_format = torch.contiguous_format) -> Any:
    """The data on the device, looking into tuples, lists and dicts; images in the memory format."""
    if isinstance(data, Tensor):
        data = data.to(device, non_blocking=True)
        return data.contiguous(memory_format=layout) if data.dim() == 4 else data
    if isinstance(data, tuple | list):
        items = [moved(item, device, layout) for item in data]
        # A named tuple takes its items as separate arguments.
        return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)
    if isinstance(data, Mapping):
        return {key: moved(item, device, layout) for key, item in data.items()}
    return data
