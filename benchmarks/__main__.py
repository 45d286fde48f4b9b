"""`python -m benchmarks NAME`: measures one thing and writes `benchmarks/results/NAME.md`.

`--help` lists the names.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

BENCHMARKS = {
    "demo": (
        "make demo as a newcomer runs it: time, FLOPs, accuracy beside the whole model, predictions, ONNX"
    ),
    "coverage": "inspect, silence half, cut, compare, count, train, save and load every model",
    "budget": "is keep_flops kept, on six models and five budgets, counted by torch",
    "predictions": "are the predictions on a whole test set the same before and after the cut",
    "overhead": "time and memory that controller, gates and projection add to a plain loop",
    "loading": "a training step on real, augmented batches beside one on a constant batch",
    "ddp": "a step of fit in two processes beside a step of plain DistributedDataParallel",
    "training_time": "whole training with the shrink beside dense training and the peers",
    "resume": "kill -9 at random steps, resume, compare the final weights bit for bit",
    "kills": "one run of the command line killed twenty times, also during saves, and compared bit for bit",
    "accuracy": "accuracy at equal FLOPs and equal epochs, ours and the peers",
    "shapes": (
        "which shape learns fastest from scratch at equal FLOPs: even, or early, late or shared layers wide"
    ),
    "studies": "the paper's studies of its constants, revival and shrink on and off, with curves",
    "cost": (
        "training time, memory and latency of ours, dense, Torch-Pruning and HESSO, and where a step's time "
        "goes"
    ),
    "growth": "how the time of inspection and projection grows with the model",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark that was named; each is a package whose `command` has `add_options` and `run`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure trainonce beside its peers."
    )
    commands = parser.add_subparsers(required=True, metavar="BENCHMARK")
    given = list(sys.argv[1:] if argv is None else argv)
    for name, words in BENCHMARKS.items():
        command = commands.add_parser(name, help=words, description=words)
        # Only what is asked for is imported: the peers are not installed everywhere.
        if name in given[:1]:
            module = importlib.import_module(f"benchmarks.{name}.command")
            module.add_options(command)
            command.set_defaults(run=module.run)
    arguments = parser.parse_args(given)
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
