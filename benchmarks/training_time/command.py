"""`python -m benchmarks training_time`: whole trainings in turns; writes `benchmarks/results/training_time.md`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from benchmarks.flops import count_image_macs
from benchmarks.hesso import MISSING, python_of_peer
from benchmarks.loops import Lap, PlainLoop, PrunedLoop, noise_batches
from benchmarks.recipe import Recipe
from benchmarks.resnet import build_resnet
from benchmarks.sheet import RESULTS, ROOT, heading, table, write_sheet, yes
from benchmarks.training_time.contenders import TrainPruneTune
from benchmarks.waiting import Waiting, waiting

BAR = 0.80
KEEP_FLOPS = 0.45
OURS = "ours, shrinking"

_INTRODUCTION = """\
ResNet-{depth} on images of 32 x 32 (noise), batches of {batch}, float32, channels last, {steps} steps for everyone, really run. The loops
live in one process and take turns step by step, in an order that rotates, so that whatever else the machine does hits all alike.
HESSO needs torch 2.4.1 and so an environment of its own, and it refuses channels last: there it takes turns with a dense loop of that
environment and layout, and its ratio is to that one. Accuracy is another table's matter.

- *seconds*: the whole training; what is done *once* (attaching, pruning, cutting) is in them, and weighs less in longer runs.

- *ours*: `trainonce.attach(..., keep_flops={keep})`, all else default; the model is cut when the units that go are at zero.
- *Torch-Pruning*: half of the steps, then pruned to the same FLOPs as its CIFAR benchmark does, then the other half.
- *HESSO*: only_train_once, half of its groups to go, pruned from 10 % to 50 % of the run, cut at the end; its time does not depend on
  how much goes, as the model stays whole until then.
- *first tenth*, *last tenth*: milliseconds of the median step there.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("--depth", type=int, default=56, help="of the ResNet (default: 56)")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="length of each run (default: 300)")
    parser.add_argument("--batch-size", type=int, default=128, metavar="N")
    parser.add_argument("--hesso-python", type=Path, metavar="FILE", help="python with only_train_once (default: that of `make hesso`)")
    parser.add_argument("--out", type=Path, default=RESULTS / "training_time.md", metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if the bar is missed."""
    python = python_of_peer(arguments.hesso_python)
    with waiting(arguments.steps * (2 if python else 1), "ours, dense, Torch-Pruning") as bar:
        found = _take_turns(arguments, bar)
        bar.say("HESSO, dense on torch 2.4.1")
        hesso = _measure_hesso(python, arguments, bar) if python else None
    dense, ours = found["dense"], found[OURS]
    ratio, cpu_ratio = ours["seconds"] / dense["seconds"], ours["cpu"] / dense["cpu"]
    steps_ratio = (ours["seconds"] - ours["once"]) / dense["seconds"]
    words = _INTRODUCTION.format(depth=arguments.depth, batch=arguments.batch_size, steps=arguments.steps, keep=KEEP_FLOPS)
    header = (
        "contender",
        "seconds",
        "of dense",
        "steps only",
        "CPU, steps only",
        "once, s",
        "first tenth",
        "last tenth",
        "FLOPs of the result",
    )
    write_sheet(
        arguments.out,
        [
            "# Training time with the shrink",
            "",
            *heading(seeds="seed 0", packages=("torch", "torch-pruning", "trainonce")),
            "",
            words,
            *table(
                ("what", "bar", "ours / dense", "met"),
                [
                    ("time of the whole training", f"<= {BAR:.2f}", f"{ratio:.3f}", yes(ratio <= BAR)),
                    ("time, steps only", f"<= {BAR:.2f}", f"{steps_ratio:.3f}", yes(steps_ratio <= BAR)),
                    ("CPU seconds of all threads, steps only", f"<= {BAR:.2f}", f"{cpu_ratio:.3f}", yes(cpu_ratio <= BAR)),
                ],
            ),
            "",
            *table(header, [*(_cells(name, facts, dense) for name, facts in found.items()), *_hesso_cells(hesso)]),
        ],
    )
    return 0 if ratio <= BAR else 1


def _take_turns(arguments: argparse.Namespace, bar: Waiting) -> dict[str, dict[str, Any]]:
    batches = noise_batches(9, arguments.batch_size)
    held = batches.pop()
    example, total_steps, recipe = held[0][:1], arguments.steps, Recipe()
    models = [build_resnet(arguments.depth, seed=0).to(memory_format=torch.channels_last) for _ in range(3)]
    dense_macs = count_image_macs(models[0], example)
    loops: dict[str, PlainLoop] = {
        "dense": PlainLoop(models[0], recipe, total_steps),
        OURS: PrunedLoop(models[1], recipe, total_steps, example=held[0][:2], keep_flops=KEEP_FLOPS, shrink=True),
        "Torch-Pruning: train, prune, fine-tune": TrainPruneTune(models[2], recipe, total_steps, example=example, keep_flops=KEEP_FLOPS),
    }
    # The first pass through a shape compiles kernels: take it before the clock starts.
    for model in models:
        cross_entropy(model(held[0]), held[1]).backward()
        model.zero_grad()
    laps: dict[str, list[Lap]] = {name: [] for name in loops}
    names = list(loops)
    for step in range(total_steps):
        for name in names[step % 3 :] + names[: step % 3]:
            laps[name].append(loops[name].step(batches[step % len(batches)], held))
        bar.advance()
    found = {}
    for name, loop in loops.items():
        small = loop.finish()
        once = loop.setup_seconds + loop.finish_seconds
        found[name] = {
            "seconds": sum(lap.wall for lap in laps[name]) + once,
            "cpu": sum(lap.cpu for lap in laps[name]),
            "once": once,
            "laps": laps[name],
            "share": count_image_macs(small, example) / dense_macs,
        }
    return found


def _measure_hesso(python: Path, arguments: argparse.Namespace, bar: Waiting) -> dict[str, Any]:
    sizes = [str(number) for number in (arguments.depth, arguments.steps, arguments.batch_size)]
    command = [str(python), "-m", "benchmarks.training_time.hesso_child", *sizes]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": str(torch.get_num_threads())}
    last, errors = "", ""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for last in child.stdout:
            if last.strip().isdigit():
                bar.advance()
        errors = child.stderr.read()
    if child.returncode:
        return {"failure": (errors.strip().splitlines() or ["no word"])[-1]}
    return json.loads(last)


def _cells(name: str, facts: dict[str, Any], dense: dict[str, Any]) -> tuple[str, ...]:
    laps: Sequence[Lap] = facts["laps"]
    tenth = max(1, len(laps) // 10)
    first, last = (1000 * median(lap.wall for lap in part) for part in (laps[:tenth], laps[-tenth:]))
    steps_only = facts["seconds"] - facts["once"]
    ratios = (facts["seconds"] / dense["seconds"], steps_only / dense["seconds"], facts["cpu"] / dense["cpu"])
    return (
        name,
        f"{facts['seconds']:.1f}",
        *(f"{ratio:.3f}" for ratio in ratios),
        f"{facts['once']:.1f}",
        f"{first:.0f} ms",
        f"{last:.0f} ms",
        f"{facts['share']:.3f}",
    )


def _hesso_cells(hesso: dict[str, Any] | None) -> list[tuple[str, ...]]:
    if hesso is None or "failure" in hesso:
        return [("HESSO", hesso["failure"] if hesso else MISSING, *"-------")]
    steps_only = hesso["seconds"] - hesso["once"]
    ratios = (hesso["seconds"] / hesso["dense_seconds"], steps_only / hesso["dense_seconds"], hesso["cpu"] / hesso["dense_cpu"])
    once = f"{hesso['once']:.1f}"
    return [
        (f"dense on {hesso['versions']}", f"{hesso['dense_seconds']:.1f}", *["1.000"] * 3, "0.0", "-", "-", "1.000"),
        ("HESSO, same environment", f"{hesso['seconds']:.1f}", *(f"{r:.3f}" for r in ratios), once, "-", "-", f"{hesso['share']:.3f}"),
    ]
