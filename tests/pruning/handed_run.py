"""A short run with a hand-over in two processes; writes what each rank ended with."""

from __future__ import annotations

import hashlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import trainonce
from support.digits import batch, convolutional
from trainonce.pruning.policies import FilterNorm

STEPS = 30


def main() -> None:
    """Train; each rank has batches of its own, and rank 0's is the one that is handed over on."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    core = convolutional(8)
    optimizer = torch.optim.SGD(core.parameters(), lr=0.05, momentum=0.9)
    pruner = trainonce.attach(
        core,
        optimizer,
        example=batch(0, 2)[0],
        keep_flops=0.5,
        total_steps=STEPS,
        policy=FilterNorm(2),
        schedule=trainonce.Schedule(first_cut_from=10, settle_from=20),
        strength=trainonce.Strength(hand_over=True),
    )
    model, cuts = DistributedDataParallel(core), []
    for step in range(STEPS):
        images, labels = batch(2 * step + rank)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if pruner.step(lambda: F.cross_entropy(model(images), labels)):  # noqa: B023 - called inside step
            model = DistributedDataParallel(pruner.model)
            cuts.append(step)
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in pruner.finish().parameters())
    sys.stdout.write(f"rank {rank} {cuts} {hashlib.sha256(weights).hexdigest()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
