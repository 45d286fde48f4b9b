"""An own loop with Accelerate for the tests; run as a script, one of two processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import trainonce
from trainonce.integrations.accelerate import register, rewrap

STEPS, ACCUMULATED = 24, 2
SCHEDULE = trainonce.Schedule(search_from=2, settle_from=12, update_every=1)
"""The cuts are at steps 5 and 13."""


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Linear(12, 16), nn.LayerNorm(16), nn.Linear(16, 24), nn.ReLU()),
        *(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4)),
    )


def train(
    out: Path | None = None, *, save_at: int = 0, stop: bool = False, resume: bool = False
) -> dict[str, Any]:
    """A run, or its first or second half; what it came to."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    points = torch.randn(STEPS * ACCUMULATED * 8, 12, generator=torch.Generator().manual_seed(1))
    labels = (points @ torch.randn(12, 4, generator=torch.Generator().manual_seed(2))).argmax(dim=1)
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    loader = DataLoader(TensorDataset(points, labels), batch_size=8 // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=points[:2],
        keep_flops=0.5,
        total_steps=STEPS,
        schedule=SCHEDULE,
        round_to=1,
    )
    register(accelerator, model, pruner)
    if resume:
        accelerator.load_state(str(out))
        loader = accelerator.skip_first_batches(loader, save_at * ACCUMULATED)
    num_cuts = 0
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        if not accelerator.sync_gradients:
            continue
        if pruner.step(lambda: cross_entropy(model(inputs), targets)):  # noqa: B023 - called inside step
            num_cuts += 1
            rewrap(accelerator, model)
        if pruner.num_steps == save_at and not resume:
            accelerator.save_state(str(out))
            if stop:
                break
    if not stop:
        pruner.finish()
    return {
        "weights": [weight.tolist() for weight in accelerator.unwrap_model(model).parameters()],
        "wrapper": type(model).__name__,
        "models": len(accelerator._models),
        "cuts": num_cuts,
        "share": pruner.keep_now,
        "steps": pruner.num_steps,
    }


def main() -> None:
    """Train whole, and once more in two halves; write what each rank came to."""
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    found = {
        "whole": train(),
        "half": train(out / "state", save_at=8, stop=True),
        "resumed": train(out / "state", save_at=8, resume=True),
    }
    (out / f"rank{dist.get_rank()}.json").write_text(json.dumps(found))
    # A rank that leaves while the other still talks may abort.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
