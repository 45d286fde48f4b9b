"""One of the processes: `python -m benchmarks.timing.ddp_child OPTIONS_AS_JSON` under torchrun's environment.

Prints its turns as JSON.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.harness.children import end_with_parent
from benchmarks.harness.resnet import build_resnet
from benchmarks.timing.loops import noise_batches
from benchmarks.timing.turns import PlainDDP, TurnSamples
from trainonce.pruning.attachment import attach
from trainonce.pruning.pruner import Pruner
from trainonce.training import Settings, fit
from trainonce.training.loop import attaching
from trainonce.training.results import outcome

KEEP_FLOPS = 0.45
EPOCHS = 4
STORED_BATCHES = 4


def main() -> None:
    """Train through the whole schedule and print what each step took."""
    end_with_parent()
    options = json.loads(sys.argv[1])
    torch.set_num_threads(options["threads"])
    logging.getLogger("trainonce").setLevel(logging.ERROR)
    outcome.LATENCY_SECONDS = 0.0
    pruners: list[Pruner] = []

    def attach_and_note(*args: Any, **settings: Any) -> Pruner:
        pruners.append(attach(*args, **settings, shrink=options["shrink"]))
        return pruners[-1]

    attaching.attach = attach_and_note
    settings = Settings(
        keep_flops=KEEP_FLOPS,
        epochs=EPOCHS,
        batch_size=options["batch_size"],
        device="cpu",
        warmup_epochs=0.2,
    )
    stored = noise_batches(STORED_BATCHES, options["batch_size"], image_size=options["image_size"])
    images, labels = (torch.cat([batch[part] for batch in stored]).contiguous() for part in range(2))
    model = build_resnet(options["depth"], seed=0)
    num_samples = options["batch_size"] * (options["steps"] // EPOCHS)
    samples = TurnSamples(
        images, labels, num_samples, PlainDDP(copy.deepcopy(model), settings), lambda: pruners[-1]
    )
    fit(model, (samples, (images[:16], labels[:16])), settings=settings)
    print(json.dumps([asdict(turn) for turn in samples.turns]))


if __name__ == "__main__":
    main()
