"""Two processes that train together decide alike, and as one process with the same global batch would."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from trainonce.pruning.distributed import (
    averaged,
    gradient_exchange_paused,
    is_distributed,
    same_everywhere,
    unwrapped_model,
)
from trainonce.pruning.policies import AnchoredController, Controller, FeatureRank, Policy

TOTAL_STEPS = 120
SECONDS = 150
pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no gloo"
)

POLICIES: dict[str, Callable[[], Policy]] = {
    "anchored": AnchoredController,
    "controller": Controller,
    "feature_rank": lambda: FeatureRank(num_images=16),
}


def net() -> nn.Module:
    """No batch norm: its statistics are those of a rank, not of the global batch."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 10, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(10, 12, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * 4, 5),
    ).double()


def share_of_batch(step: int, rank: int, world: int) -> tuple[Tensor, Tensor]:
    """This rank's part of a global batch of 16."""
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(16, 1, 6, 6, generator=generator, dtype=torch.double)
    labels = (
        images.flatten(1) @ torch.randn(36, 5, generator=torch.Generator().manual_seed(7), dtype=torch.double)
    ).argmax(dim=1)
    part = slice(rank * 16 // world, (rank + 1) * 16 // world)
    return images[part], labels[part]


def run(rank: int, world: int, policy: str) -> dict[str, Any]:
    """A whole run of one rank, wrapped before it is attached or after; what it decided and where it ended."""
    core = net()
    optimizer = torch.optim.SGD(core.parameters(), lr=0.05, momentum=0.9)
    early = policy == "anchored"
    model: nn.Module = DistributedDataParallel(core) if world > 1 and early else core
    pruner = trainonce.attach(
        model,
        optimizer,
        example=torch.zeros(2, 1, 6, 6, dtype=torch.double),
        keep_flops=0.5,
        total_steps=TOTAL_STEPS,
        policy=POLICIES[policy](),
        schedule=trainonce.Schedule(search_from=5, settle_from=60, update_every=1),
        round_to=1,
    )
    if world > 1 and not early:
        model = DistributedDataParallel(core)
    wrappers, drawn = [id(model)], []
    for step in range(TOTAL_STEPS):
        images, labels = share_of_batch(step, rank, world)
        held = share_of_batch(step + 10_000, rank, world)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if pruner.step(lambda: F.cross_entropy(model(held[0]), held[1])):  # noqa: B023 - called inside step
            if world > 1:
                model = DistributedDataParallel(pruner.model)
            wrappers.append(id(model))
        if pruner.controller_loss is not None:
            drawn.append(pruner.controller_loss)
    small = pruner.finish()
    return {
        "masks": {name: mask.clone() for name, mask in pruner.masks.items()},
        "weights": {name: tensor.clone() for name, tensor in small.state_dict().items()},
        "losses": torch.tensor(drawn),
        "wrappers": torch.tensor(len(wrappers)),
    }


def worker(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    try:
        found = {"primitives": primitives(rank)} | {policy: run(rank, world, policy) for policy in POLICIES}
        torch.save(found, f"{folder}/rank{rank}.pt")
        # A wrapper that outlives its group, or a rank that leaves while the other still talks, may abort.
        gc.collect()
        dist.barrier()
    finally:
        dist.destroy_process_group()


def primitives(rank: int) -> dict[str, Any]:
    """What the ranks exchange, and that a paused wrapper exchanges nothing and is put back."""
    core = nn.Linear(3, 2)
    model = DistributedDataParallel(core)
    inputs = torch.full((4, 3), float(rank + 1))
    with gradient_exchange_paused(core):
        (paused,) = torch.autograd.grad(model(inputs).sum(), [core.weight])
    resumed = model.require_backward_grad_sync
    core.zero_grad()
    model(inputs).sum().backward()
    return {
        "averaged": averaged(torch.tensor([float(rank), 2.0])),
        "same": same_everywhere(torch.tensor([float(rank + 5)])),
        "distributed": torch.tensor(is_distributed()),
        "unwrapped": torch.tensor(unwrapped_model(model) is core),
        "paused": paused,
        "resumed": torch.tensor(resumed),
        "exchanged": core.weight.grad,
    }


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found; they are ended if they hang."""
    folder = tmp_path_factory.mktemp("ranks")
    context = mp.spawn(worker, args=(2, str(folder)), nprocs=2, join=False)
    assert context is not None
    deadline = time.monotonic() + SECONDS
    try:
        while not context.join(timeout=5):
            if time.monotonic() > deadline:
                pytest.fail("the processes hang")
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


def test_what_is_exchanged(ranks: list[dict[str, Any]]):
    left, right = (found["primitives"] for found in ranks)
    assert left["averaged"].tolist() == right["averaged"].tolist() == [0.5, 2.0]
    assert left["same"].tolist() == right["same"].tolist() == [5.0]
    for found in (left, right):
        assert bool(found["distributed"])
        assert bool(found["unwrapped"])
        assert bool(found["resumed"])
    assert left["paused"].unique().tolist() == [4.0]
    assert right["paused"].unique().tolist() == [8.0]
    assert left["exchanged"].unique().tolist() == right["exchanged"].unique().tolist() == [6.0]


@pytest.mark.parametrize("policy", list(POLICIES))
def test_two_ranks_decide_alike_and_like_one(ranks: list[dict[str, Any]], policy: str):
    left, right = (found[policy] for found in ranks)
    with torch.random.fork_rng(devices=[]):
        alone = run(0, 1, policy)
    assert left["masks"].keys() == right["masks"].keys() == alone["masks"].keys()
    for name, mask in left["masks"].items():
        assert 0 < int(mask.sum()) <= len(mask)
        assert torch.equal(mask, right["masks"][name])
        assert torch.equal(mask, alone["masks"][name])
    assert any(bool((mask == 0).any()) for mask in left["masks"].values())
    for name, weight in left["weights"].items():
        assert torch.equal(weight, right["weights"][name])
        assert weight.shape == alone["weights"][name].shape
        assert torch.allclose(weight, alone["weights"][name], rtol=1e-6, atol=1e-8)
    assert torch.equal(left["losses"], right["losses"])
    assert torch.allclose(left["losses"], alone["losses"], rtol=1e-4)
    assert int(left["wrappers"]) == int(right["wrappers"]) == 3, "wrapped anew at both cuts"


def test_alone_nothing_is_exchanged():
    assert not is_distributed()
    numbers = torch.tensor([1.0, 2.0])
    assert averaged(numbers) is numbers
    assert same_everywhere(numbers) is numbers


def test_wrappers_in_any_order_are_taken_off():
    core = nn.Linear(2, 2)
    assert unwrapped_model(core) is core
    assert unwrapped_model(nn.DataParallel(core)) is core
    assert unwrapped_model(torch.compile(core, backend="eager")) is core
    assert unwrapped_model(nn.DataParallel(torch.compile(core, backend="eager"))) is core
