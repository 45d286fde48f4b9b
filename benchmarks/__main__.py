"""`python -m benchmarks NAME`: measures one thing and writes `benchmarks/results/NAME.md`.

`--help` lists the names.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from benchmarks.sheets.options import add_out

BENCHMARKS = {
    "demo": (
        "promises",
        "make demo as a newcomer runs it: time, FLOPs, accuracy beside the dense model, predictions, ONNX",
    ),
    "int8": ("promises", "accuracy, milliseconds and bytes of dense, small and small int8 in ONNX Runtime"),
    "coverage": ("coverage", "inspect, silence half, cut, compare, count, train, save and load every model"),
    "dropped": ("coverage", "the timm suite with drop_path and dropout on: can as much be cut as without"),
    "reach": ("reach", "how little of a model can remain, by family, and why the rest must stay"),
    "modelopt": (
        "coverage",
        "NVIDIA ModelOpt's FastNAS on the same models: what it can cut, exactly, and does it meet a budget",
    ),
    "budget": ("promises", "is keep_flops met, on six models and five budgets, counted by torch"),
    "predictions": ("promises", "are predictions on a whole test set the same before and after the cut"),
    "overhead": ("timing", "time and memory that controller, gates and projection add to a plain loop"),
    "loading": ("timing", "a training step on real, augmented batches beside one on a constant batch"),
    "ddp": ("timing", "a step of fit in two processes beside a step of plain DistributedDataParallel"),
    "training_time": ("timing", "whole training with the shrink beside dense training and the peers"),
    "resume": ("killing", "kill -9 at random steps, resume, compare the final weights bit for bit"),
    "kills": ("killing", "kill one run of the command line twenty times, also during saves; same bits?"),
    "accuracy": ("training", "accuracy at equal FLOPs and equal epochs, ours and the peers"),
    "cutting": ("training", "what a cut of pretrained weights costs, right after it and in the end"),
    "paper": ("paper", "rows of the paper's tables, dense and small, beside its figures; for GPUs"),
    "shapes": (
        "training",
        "which shape learns fastest from scratch at equal FLOPs: even, or early, late or shared layers wide",
    ),
    "studies": (
        "training",
        "the paper's studies of its constants, revival and shrink on and off, with curves",
    ),
    "cost": ("timing", "time, memory and latency of ours, dense and the peers, and where a step's time goes"),
    "growth": ("timing", "how the time of inspection and projection grows with the model"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark that was named; each is a module of a room with `add_options` and `run`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure trainonce beside its peers."
    )
    commands = parser.add_subparsers(required=True, metavar="BENCHMARK")
    given = list(sys.argv[1:] if argv is None else argv)
    for name, (room, words) in BENCHMARKS.items():
        command = commands.add_parser(name, help=words, description=words)
        # Only what is asked for is imported: the peers are not installed everywhere.
        if name in given[:1]:
            module = importlib.import_module(f"benchmarks.{room}.{name}")
            module.add_options(command)
            add_out(command, name)
            command.set_defaults(run=module.run)
    arguments = parser.parse_args(given)
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
