"""`bench`: latency of the dense and the small model in each engine and at each batch size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainonce.engines.counting import count_macs
from trainonce.engines.runtimes import prepare
from trainonce.engines.timing import Milliseconds, measure_latency
from trainonce.errors import EngineError
from trainonce.messages.plain_text import reason_of

LARGEST_BATCH = 2**20
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Row:
    """One engine at one batch size."""

    engine: str
    batch_size: int
    dense: Milliseconds
    small: Milliseconds

    @property
    def speed_up(self) -> float:
        """How many times faster the small model is."""
        return self.dense.median / self.small.median

    def share_of(self, keep_flops: float) -> float:
        """How much of the FLOPs reduction shows up as less latency; 1 means all of it."""
        return (1 - self.small.median / self.dense.median) / (1 - keep_flops) if keep_flops < 1 else 0.0


@dataclass(frozen=True, slots=True)
class Bench:
    """The result of `bench`."""

    keep_flops: float
    device: str
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]
    """Engines and batch sizes that could not be measured, with the reason."""


def bench(
    dense: nn.Module,
    small: nn.Module,
    image: Tensor,
    *,
    batch_sizes: tuple[int, ...],
    engines: tuple[str, ...],
    seconds: float,
    device: torch.device = CPU,
    say: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Latency of both models in every engine at every batch size, `seconds` for each pair.

    `say` is told what is measured next. The models are moved to the device and stay there.
    """
    rows: list[Row] = []
    left_out: list[str] = []
    dense, small, image = dense.to(device), small.to(device), image.to(device)
    for engine in engines:
        for batch_size in batch_sizes:
            note = ": compiling takes a minute or more" if engine == "compiled" else ""
            say(f"{engine}, batch {batch_size}{note}")
            # Once for both models: it drops what was compiled before.
            torch.compiler.reset()
            try:
                batch = image.expand(batch_size, *image.shape[1:]).contiguous()
                models = {"dense": prepare(engine, dense, batch), "small": prepare(engine, small, batch)}
                times = measure_latency(models, batch, seconds=seconds)
            except EngineError as error:
                left_out.append(f"{engine}: {error}")
                break
            except (RuntimeError, MemoryError) as error:
                # Too large for the memory, or more than the model takes: other sizes may work.
                left_out.append(f"{engine}, batch {batch_size}: {reason_of(error)}")
                continue
            rows.append(Row(engine, batch_size, times["dense"], times["small"]))
    before, after = count_macs(dense, image), count_macs(small, image)
    keep_flops = after / before if before and after else 1.0
    return Bench(keep_flops=keep_flops, device=str(device), rows=tuple(rows), left_out=tuple(left_out))
