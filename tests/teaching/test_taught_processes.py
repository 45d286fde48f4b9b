"""Two processes with a teacher come to one model, which is that of one process with the global batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import trainonce
from support.ranks import run_two

TOTAL_STEPS = 60


def net(width: int, seed: int) -> nn.Module:
    """No batch norm: its statistics are those of a rank, not of the global batch."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * width, 12), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(12, 5)).double()


def part_of_batch(step: int, rank: int, world: int) -> tuple[Tensor, Tensor]:
    """This rank's part of a global batch of 16."""
    images = torch.randn(16, 1, 6, 6, generator=torch.Generator().manual_seed(step), dtype=torch.double)
    labels = (images.sum(dim=(1, 2, 3)) / 6).clamp(-2, 2).round().long() + 2
    part = slice(rank * 16 // world, (rank + 1) * 16 // world)
    return images[part], labels[part]


def run(rank: int, world: int, *, is_own_teacher: bool) -> dict[str, Any]:
    """A whole run of one rank: the weights and the number of cuts."""
    core = net(10, seed=0)
    model: nn.Module = DistributedDataParallel(core) if world > 1 else core
    optimizer = torch.optim.SGD(core.parameters(), lr=0.05, momentum=0.9)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=torch.zeros(2, 1, 6, 6, dtype=torch.double),
        keep_flops=0.5,
        total_steps=TOTAL_STEPS,
        schedule=trainonce.Schedule(search_from=5, settle_from=30, update_every=1),
        round_to=1,
        teacher=is_own_teacher or net(20, seed=1),
    )

    def loss_on(images: Tensor, labels: Tensor) -> Tensor:
        outputs = model(images)
        return pruner.taught(cross_entropy(outputs, labels), outputs, images)

    for step in range(TOTAL_STEPS):
        optimizer.zero_grad()
        loss_on(*part_of_batch(step, rank, world)).backward()
        optimizer.step()
        held = part_of_batch(step + 10_000, rank, world)
        if pruner.step(lambda: loss_on(*held)) and world > 1:  # noqa: B023
            model = DistributedDataParallel(pruner.model)
    return {"weights": dict(pruner.finish().state_dict()), "cuts": len(pruner.cuts)}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = [run(rank, 2, is_own_teacher=is_own) for is_own in (True, False)]
    torch.save(found, Path(sys.argv[1]) / f"rank{rank}.pt")
    # A rank that leaves while the other still talks may abort.
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")
def test_two_ranks_learn_alike_and_like_one(tmp_path: Path):
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    run_two(Path(__file__), str(tmp_path))
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    for place, is_own in enumerate((True, False)):
        with torch.random.fork_rng(devices=[]):
            alone = run(0, 1, is_own_teacher=is_own)
        left, right = (found[place] for found in ranks)
        assert left["cuts"] == right["cuts"] == alone["cuts"] == 2
        for name, weight in alone["weights"].items():
            assert torch.equal(left["weights"][name], right["weights"][name])
            assert left["weights"][name].shape == weight.shape
            assert torch.allclose(left["weights"][name], weight, rtol=1e-6, atol=1e-8)


if __name__ == "__main__":
    main()
