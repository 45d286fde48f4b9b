"""Samplers of the user's own: their order is the run's order, and any step of it can be asked for again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Sampler, WeightedRandomSampler

from support.numbered import DATA, Numbers
from support.runs import Counter, interrupt, make_net, make_settings, same_weights
from trainonce.errors import RunInterruptedError
from trainonce.training import fit
from trainonce.training.batches.order import Order
from trainonce.training.batches.sources import as_source


class Sevens(Sampler[int]):
    """Seven samples of twenty, drawn in one of the ways in which people draw."""

    def __init__(self, way: str) -> None:
        self.way, self.epoch = way, -1
        self.generator, self.own, self.numpy = (
            torch.Generator(),
            random.Random(1),
            numpy.random.default_rng(1),
        )

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        ways = {
            "torch": lambda: torch.randperm(20).tolist(),
            "a generator": lambda: torch.randperm(20, generator=self.generator).tolist(),
            "python": lambda: random.sample(range(20), 20),
            "a random.Random": lambda: self.own.sample(range(20), 20),
            "numpy": lambda: numpy.random.permutation(20),
            "a numpy generator": lambda: self.numpy.permutation(20),
            "set_epoch": lambda: [(number + self.epoch) % 20 for number in range(20)],
        }
        return iter(ways[self.way]()[:7])

    def __len__(self) -> int:
        return 7


class Pairs(Sampler[list[int]]):
    """Batches of an even and an odd sample, and one of all that are left."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(60).tolist()
        yield from ([2 * number, 2 * number + 1] * 4 for number in order[:9])
        yield [2 * number for number in order[9:19]]

    def __len__(self) -> int:
        return 10


def order_of(loader: DataLoader[Any], *, num_samples: int = 20, seed: int = 3) -> Order:
    source = as_source(loader, "training")
    assert source.batch_size is not None
    return Order(torch.arange(num_samples), source.batch_size, seed, source.drawing)


WAYS = ["torch", "a generator", "python", "a random.Random", "numpy", "a numpy generator", "set_epoch"]


@pytest.mark.parametrize("way", WAYS)
def test_every_epoch_is_another_and_any_step_can_be_asked_for(way: str):
    one, other = (order_of(DataLoader(Numbers(), batch_size=3, sampler=Sevens(way))) for _ in range(2))
    before = random.getstate(), torch.get_rng_state()
    assert one.steps_per_epoch == 2
    forwards = [one.batch(step) for step in range(8)]
    assert all(len(batch) == 3 for batch in forwards)
    for step in (7, 2, 5, 0):
        assert torch.equal(other.batch(step), forwards[step])
    epochs = {tuple(torch.cat(forwards[step : step + 2]).tolist()) for step in range(0, 8, 2)}
    assert len(epochs) == 4
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_batches_of_a_batch_sampler_are_the_steps():
    order = order_of(DataLoader(DATA, batch_sampler=Pairs()), num_samples=160)
    assert (order.steps_per_epoch, order.batch_size, order.smallest_batch) == (10, 10, 8)
    for step in range(30):
        batch = order.batch(step)
        assert len(batch) == (10 if step % 10 == 9 else 8)
        assert len(batch.unique()) == (10 if step % 10 == 9 else 2)


def test_torchs_own_batch_sampler_is_that_sampler_with_that_batch_size():
    weights = torch.tensor([0.0, 1.0] * 10)
    drawn = WeightedRandomSampler(weights.tolist(), 40)
    one, other = (
        order_of(loader)
        for loader in (
            DataLoader(Numbers(), batch_sampler=BatchSampler(drawn, 4, False)),
            DataLoader(Numbers(), batch_size=4, sampler=drawn),
        )
    )
    assert [one.batch(step).tolist() for step in range(20)] == [
        other.batch(step).tolist() for step in range(20)
    ]
    assert all(bool((one.batch(step) % 2 == 1).all()) for step in range(20))


def test_in_validation_the_choice_counts_and_the_order_does_not():
    source = as_source(DataLoader(Numbers(), batch_size=3, sampler=Sevens("torch")), "validation")
    assert len(source.samples) == 7
    assert source.drawing is None


@pytest.mark.parametrize("stop", [3, 27])
def test_a_run_with_a_batch_sampler_goes_on_to_the_same_bits(stop: int, tmp_path: Path):
    settings = make_settings(epochs=6)

    def run(folder: str, **options: Any) -> Any:
        data = DataLoader(DATA, batch_sampler=Pairs()), DATA
        return fit(make_net(), data, settings=settings, out=tmp_path / folder, quiet=True, **options)

    whole = run("whole")
    assert whole.report["schedule"]["steps_per_epoch"] == 10
    with pytest.raises(RunInterruptedError):
        run("stopped", loss=Counter({stop}, interrupt))
    assert same_weights(run("stopped", resume=True).model, whole.model)
