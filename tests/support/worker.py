"""One process of a run for the tests: `python worker.py OUT SETTINGS_AS_JSON [TRACE]`.

One of several under torchrun.

`is_plain` beside the settings takes a net in float64 without batch norm and dropout.
"""

import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.runs import make_data, make_net, make_plain_net, make_settings
from trainonce.errors import RunInterruptedError
from trainonce.training import fit
from trainonce.training.loop.trainer import Trainer
from trainonce.training.results import outcome


def main() -> int:
    out, changes = Path(sys.argv[1]), json.loads(sys.argv[2])
    outcome.LATENCY_SECONDS = 0.0
    torch.set_num_threads(1)
    if len(sys.argv) > 3:
        trace_masks(Path(f"{sys.argv[3]}.{os.environ.get('RANK', '0')}"))
    net, data = make_net(), make_data()
    if changes.pop("is_plain", False):
        net, data = make_plain_net(), tuple((images.double(), labels) for images, labels in data)
    try:
        fit(net, data, settings=make_settings(**changes), out=out, resume=True)
    except RunInterruptedError as stop:
        sys.stdout.write(f"{stop}\n")
        return 75
    return 0


def trace_masks(file: Path) -> None:
    """Write after each step which samples it saw and the masks in force."""
    run_step = Trainer.run_step

    def traced(self, batch, *, stop=False):
        step = self.step
        news = run_step(self, batch, stop=stop)
        masks = (
            {}
            if self.pruner is None
            else {name: mask.int().tolist() for name, mask in self.pruner.masks.items()}
        )
        mine = [int(value) for inputs, _ in batch for value in (1e6 * inputs[:, 0, 0, 0]).round()]
        with file.open("a") as stream:
            stream.write(json.dumps({"step": step, "masks": masks, "samples": mine}) + "\n")
        return news

    Trainer.run_step = traced


if __name__ == "__main__":
    sys.exit(main())
