"""HESSO and a dense loop in turns, in only_train_once's environment.

Prints a line per step and at last what was found, as JSON.

`python -m benchmarks.training_time.hesso_child ARCHITECTURE STEPS BATCH LATENCY_SECONDS`. Nothing of
trainonce is imported: it wants a newer torch.
"""

from __future__ import annotations

import json
import sys

import torch

from benchmarks.latency import latencies_ms
from benchmarks.parent import end_with_parent
from benchmarks.sheet import version_of
from benchmarks.trainings import train_in_turns


def main() -> None:
    """Both loops, step by step, the cut, and how fast both models are."""
    end_with_parent()
    architecture, num_steps, batch_size, latency_seconds = (
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]),
    )
    found = train_in_turns(
        ("dense", "hesso"),
        architecture=architecture,
        num_steps=num_steps,
        batch_size=batch_size,
        # Its views refuse channels last; so the dense loop beside it does without, too.
        memory_format=torch.contiguous_format,
        advance=lambda: print("step", flush=True),
    )
    models = {name: training.model for name, training in found.items()}
    latencies = [
        latencies_ms(models, torch.randn(size, 3, 32, 32), seconds=latency_seconds)
        for size in (1, batch_size)
        if latency_seconds
    ]
    facts = {
        name: {
            "seconds": training.seconds,
            "once": training.once,
            "cpu": training.cpu_seconds,
            "share": training.share_of_flops,
            "latencies": [of_size[name] for of_size in latencies],
        }
        for name, training in found.items()
    }
    print(
        json.dumps(
            {
                **facts,
                "versions": f"torch {torch.__version__}, only_train_once {version_of('only_train_once')}",
            }
        )
    )


if __name__ == "__main__":
    main()
