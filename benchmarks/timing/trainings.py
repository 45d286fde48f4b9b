"""Whole trainings side by side: takes the names of contenders, gives the laps and the final model of each.

Imports a contender's library only if it is asked for: HESSO's environment lacks the others', and the others
lack HESSO's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from benchmarks.harness.architectures import build_architecture
from benchmarks.harness.flops import count_image_macs
from benchmarks.harness.recipe import Recipe
from benchmarks.sheets.options import add_number
from benchmarks.timing.loops import Lap, PlainLoop, noise_batches, take_turns

KEEP_FLOPS = 0.45


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """The options of benchmarks that measure memory, too."""
    add_number(parser, "--batch-size", 128)
    add_number(parser, "--memory-steps", 16)
    add_number(parser, "--memory-repeats", 3)


@dataclass(frozen=True, slots=True)
class Training:
    """What one contender did."""

    loop: PlainLoop
    laps: Sequence[Lap]
    model: nn.Module
    share_of_flops: float

    @property
    def once(self) -> float:
        """Seconds of what is done once: attaching, pruning, cutting."""
        return self.loop.setup_seconds + self.loop.finish_seconds

    @property
    def step_seconds(self) -> float:
        return sum(lap.wall for lap in self.laps)

    @property
    def seconds(self) -> float:
        return self.step_seconds + self.once

    @property
    def cpu_seconds(self) -> float:
        """Of the steps, all threads."""
        return sum(lap.cpu for lap in self.laps)

    def facts(self) -> dict[str, float]:
        """The figures that tables compare."""
        return {
            "seconds": self.seconds,
            "once": self.once,
            "cpu": self.cpu_seconds,
            "share": self.share_of_flops,
        }


def train_in_turns(
    names: Sequence[str],
    *,
    architecture: str,
    num_steps: int,
    batch_size: int,
    memory_format: torch.memory_format = torch.channels_last,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Training]:
    """Everyone trains the same model on the same noise in one process, step by step."""
    batches = noise_batches(9, batch_size, memory_format=memory_format)
    held = batches.pop()
    example = held[0][:2]
    models = {
        name: build_architecture(architecture, seed=0).to(memory_format=memory_format) for name in names
    }
    dense_macs = count_image_macs(models[names[0]], example[:1])
    loops = {
        name: loop_class(name)(model, Recipe(), num_steps, example=example, keep_flops=KEEP_FLOPS)
        for name, model in models.items()
    }
    laps = take_turns(loops, batches, held, advance=advance)
    finished = {name: loop.finish() for name, loop in loops.items()}
    return {
        name: Training(loops[name], laps[name], model, count_image_macs(model, example[:1]) / dense_macs)
        for name, model in finished.items()
    }


def loop_class(name: str) -> Callable[..., PlainLoop]:
    """What makes a contender's loop; the first call imports what it needs."""
    if name == "dense":
        return lambda model, recipe, num_steps, **_: PlainLoop(model, recipe, num_steps)
    if name in ("ours", "taught", "unshrunk"):
        from benchmarks.timing.pruned_loop import PrunedLoop

        return partial(PrunedLoop, shrink=name != "unshrunk", is_taught=name == "taught")
    if name == "torch_pruning":
        from benchmarks.timing.train_prune_tune import TrainPruneTune

        return TrainPruneTune
    if name == "hesso":
        from benchmarks.timing.hesso_loop import HessoLoop

        return HessoLoop
    raise ValueError(
        f"there is no training {name!r}. Known are dense, ours, taught, unshrunk, torch_pruning and hesso."
    )
