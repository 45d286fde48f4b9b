"""`bench`: latency of the dense and the small model in each engine and at each batch size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainonce.engines.counting import count_macs
from trainonce.engines.deadlines import can_interrupt, interrupted_after
from trainonce.engines.runtimes import prepare
from trainonce.engines.timing import Milliseconds, TooSlowError, measure_latency
from trainonce.errors import EngineError
from trainonce.messages.plain_text import reason_of

LARGEST_BATCH = 2**20
PREPARATION_SECONDS = 240
"""For both models in one engine at one batch size; compiling takes a minute or two on a slow machine."""

SHORTEST_LIMIT = 10.0
"""Seconds that a pair of models may take even if hardly any were asked for."""

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
    is_interrupted: bool = False
    """Whether Ctrl-C ended it; the rows are those that were measured before."""


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

    `say` is told beforehand how long it takes, and then what is measured next. Ctrl-C keeps what was
    measured. The models are moved to the device and stay there.
    """
    rows: list[Row] = []
    left_out: list[str] = []
    is_interrupted = False
    dense, small, image = dense.to(device), small.to(device), image.to(device)
    say(_announcement(engines, batch_sizes, seconds))
    try:
        for engine in engines:
            for batch_size in batch_sizes:
                say(f"{engine}, batch {batch_size}")
                try:
                    rows.append(_measure(engine, dense, small, image, batch_size, seconds))
                except (RuntimeError, MemoryError, TooSlowError) as error:
                    # Too large for the memory, or more than the model takes: other sizes may work.
                    left_out.append(f"{engine}, batch {batch_size}: {reason_of(error)}")
                except EngineError as error:
                    left_out.append(f"{engine}: {error}")
                    break
    except KeyboardInterrupt:
        if not rows:
            raise
        is_interrupted = True
        left_out.append("what comes after the last row: interrupted")
    before, after = count_macs(dense, image), count_macs(small, image)
    return Bench(
        keep_flops=after / before if before and after else 1.0,
        device=str(device),
        rows=tuple(rows),
        left_out=tuple(left_out),
        is_interrupted=is_interrupted,
    )


def _measure(
    engine: str, dense: nn.Module, small: nn.Module, image: Tensor, batch_size: int, seconds: float
) -> Row:
    # Once for both models: it drops what was compiled before.
    torch.compiler.reset()
    batch = image.expand(batch_size, *image.shape[1:]).contiguous()
    words = f"not ready after {PREPARATION_SECONDS} s of exporting or compiling"
    with interrupted_after(PREPARATION_SECONDS, EngineError(words)):
        models = {"dense": prepare(engine, dense, batch), "small": prepare(engine, small, batch)}
    longest = longest_for(seconds)
    slow = TooSlowError(f"calls are too slow to measure both models within {longest:.3g} s")
    with interrupted_after(longest, slow):
        # A call that began in time is waited for where it can't be interrupted.
        times = measure_latency(models, batch, seconds=seconds, longest=0.9 * longest)
    return Row(engine, batch_size, times["dense"], times["small"])


def longest_for(seconds: float) -> float:
    """How long a pair of models is measured at most: five calls of each may take more than they should."""
    return max(2 * seconds, SHORTEST_LIMIT)


def _announcement(engines: tuple[str, ...], batch_sizes: tuple[int, ...], seconds: float) -> str:
    """How long all of it takes, before it begins."""
    num_pairs = len(engines) * len(batch_sizes)
    num_prepared = (len(engines) - engines.count("eager")) * len(batch_sizes)
    line = (
        f"measuring {num_pairs} x {seconds:g} s: about {num_pairs * seconds:.0f} s, at most "
        f"{num_pairs * longest_for(seconds):.0f} s if calls are slow"
    )
    if not num_prepared:
        return line
    limit = f"at most {PREPARATION_SECONDS} s" if can_interrupt() else "any time"
    return f"{line}. Exporting and compiling come on top, {limit} for each of {num_prepared}"
