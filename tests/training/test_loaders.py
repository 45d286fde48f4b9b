"""Everything that a DataLoader says is honored exactly, or refused in one line."""

from __future__ import annotations

from collections import Counter as Tally
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils import data as torch_data
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from support.numbered import DATA, LABELS, Numbers
from support.runs import Counter, Listener, interrupt, make_net, make_settings, same_weights
from trainonce.errors import RunInterruptedError
from trainonce.training import Settings, fit
from trainonce.training.batches.order import Drawing, Order, draw_controller_samples
from trainonce.training.batches.sources import as_samples, as_source


def numbers_of(data: Any, what: str = "training") -> list[int]:
    source = as_source(data, what)
    return sorted(
        int(number)
        for _, targets in source.samples.batches([(torch.arange(len(source.samples)), 0)])
        for number in targets
    )


@pytest.mark.parametrize("form", [list, torch.tensor, numpy.array, tuple])
@pytest.mark.parametrize("what", ["training", "validation"])
def test_a_subset_is_that_subset(form: Any, what: str):
    loader = DataLoader(Numbers(), batch_size=4, sampler=SubsetRandomSampler(form([3, 17, 5, 9, 11])))
    assert numbers_of(loader, what) == [3, 5, 9, 11, 17]
    assert numbers_of(Subset(Numbers(), [3, 17, 5]), what) == [3, 5, 17]
    assert numbers_of(DataLoader(Numbers(), batch_size=4, sampler=[2, 7, 9]), what) == [2, 7, 9]


def test_two_subsets_of_one_data_set_stay_apart():
    train, validation = SubsetRandomSampler(range(120)), SubsetRandomSampler(range(120, 160))
    loaders = (
        DataLoader(DATA, batch_size=16, sampler=train),
        DataLoader(DATA, batch_size=16, sampler=validation),
    )
    settings = Settings(keep_flops=0.5, epochs=6, lr=0.05)
    result = fit(make_net(), loaders, settings=settings, quiet=True)
    assert result.report["agreement"]["num_samples"] == 40
    assert result.report["schedule"]["steps_per_epoch"] == 120 // 16
    subsets = Subset(DATA, range(120)), Subset(DATA, range(120, 160))
    again = fit(make_net(), subsets, settings=make_settings(batch_size=16), quiet=True)
    assert same_weights(again.model, result.model)


@pytest.mark.parametrize("what", ["training", "validation"])
@pytest.mark.parametrize("kind", [torch_data.SequentialSampler, RandomSampler])
def test_a_sampler_made_from_something_shorter_is_that_part(kind: Any, what: str):
    assert numbers_of(DataLoader(Numbers(), batch_size=4, sampler=kind(range(7))), what) == list(range(7))


def test_draws_from_something_shorter_stay_in_that_part():
    source = as_source(
        DataLoader(
            Numbers(), batch_size=4, sampler=RandomSampler(range(7), replacement=True, num_samples=12)
        ),
        "training",
    )
    assert len(source.samples) == 7
    assert source.drawing is not None
    assert (len(source.drawing.weights), source.drawing.num_draws) == (7, 12)


def test_the_order_of_validation_does_not_matter():
    for options in ({"shuffle": True}, {"shuffle": False}, {"shuffle": False, "drop_last": False}):
        assert numbers_of(DataLoader(Numbers(), batch_size=3, **options), "validation") == list(range(20))
    assert numbers_of(DataLoader(Numbers(), batch_size=3, drop_last=True), "validation") == list(range(18))
    assert numbers_of(DataLoader(Numbers(), batch_size=3, drop_last=True), "training") == list(range(20))


def test_weights_are_drawn_by_and_every_step_can_be_asked_for():
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 6.0])
    source = as_source(
        DataLoader(Subset(Numbers(), range(5)), batch_size=10, sampler=WeightedRandomSampler(weights, 1000)),
        "training",
    )
    one, other = (Order(torch.arange(5), 10, 3, source.drawing) for _ in range(2))
    assert one.steps_per_epoch == 100
    forwards = {step: one.batch(step) for step in range(300)}
    for step in (299, 5, 150, 0):
        assert torch.equal(other.batch(step), forwards[step])
    assert not torch.equal(
        torch.cat([forwards[step] for step in range(100)]),
        torch.cat([forwards[step] for step in range(100, 200)]),
    )
    shares = Tally(int(number) for batch in forwards.values() for number in batch)
    assert set(shares) == {1, 2, 4}
    for number in shares:
        assert shares[number] / 3000 == pytest.approx(float(weights[number] / weights.sum()), abs=0.03)


def test_without_replacement_nothing_comes_twice_in_an_epoch():
    source = as_source(
        DataLoader(Numbers(), batch_size=5, sampler=RandomSampler(Numbers(), num_samples=10)), "training"
    )
    order = Order(torch.arange(20), 5, 0, source.drawing)
    assert order.steps_per_epoch == 2
    for epoch in range(5):
        seen = torch.cat([order.batch(2 * epoch), order.batch(2 * epoch + 1)])
        assert len(seen.unique()) == 10


def test_the_controller_looks_at_what_may_be_drawn():
    drawing = Drawing(torch.tensor([1.0, 0.0] * 50), 200, replacement=True)
    samples = draw_controller_samples(100, 0.1, 0, drawing)
    assert len(samples) == 5
    assert bool((drawing.weights[samples] > 0).all())


@pytest.mark.parametrize("stop", [3, 11, 20])
def test_a_weighted_run_goes_on_to_the_same_bits(stop: int, tmp_path: Path):
    def loaders() -> tuple[DataLoader, DataLoader]:
        weights = [4.0 if label == 0 else 1.0 for label in LABELS.tolist()]
        return DataLoader(DATA, batch_size=16, sampler=WeightedRandomSampler(weights, 64)), DataLoader(
            DATA, batch_size=50
        )

    settings = Settings(keep_flops=0.5, epochs=6, lr=0.05, save_minutes=1000.0)
    whole = fit(make_net(), loaders(), settings=settings, quiet=True)
    assert whole.report["schedule"]["steps_per_epoch"] == 4
    with pytest.raises(RunInterruptedError):
        fit(
            make_net(),
            loaders(),
            settings=settings,
            loss=Counter({stop}, interrupt),
            out=tmp_path / "run",
            quiet=True,
        )
    result = fit(make_net(), loaders(), settings=settings, out=tmp_path / "run", resume=True, quiet=True)
    assert same_weights(result.model, whole.model)
    plain = fit(
        make_net(),
        (DataLoader(DATA, batch_size=16), DataLoader(DATA, batch_size=50)),
        settings=settings,
        quiet=True,
    )
    assert plain.report["schedule"]["steps_per_epoch"] == 10


def test_the_loaders_batch_size_counts_unless_the_settings_say_another():
    loaders = DataLoader(DATA, batch_size=32, shuffle=True), DataLoader(DATA, batch_size=7)
    view = Listener()
    result = fit(make_net(), loaders, keep_flops=1, epochs=1, view=view)
    assert result.report["config"]["batch_size"] == 32
    assert result.report["schedule"]["steps_per_epoch"] == 5
    assert any("batch size 32" in line for line in view.lines)
    for explicit in (16, 128):
        view = Listener()
        result = fit(
            make_net(), loaders, settings=Settings(keep_flops=1, epochs=1, batch_size=explicit), view=view
        )
        assert result.report["config"]["batch_size"] == explicit
        assert f"using batch_size={explicit} from the settings, not the DataLoader's 32" in view.lines
    assert (
        fit(make_net(), (DATA, DATA), keep_flops=1, epochs=1, quiet=True).report["config"]["batch_size"]
        == 128
    )


def test_collate_and_worker_start_are_taken(tmp_path: Path):
    def collate(items: list[Any]) -> Any:
        images, labels = zip(*items, strict=True)
        return 2 * torch.stack(images), torch.tensor(labels)

    def start(number: int) -> None:
        (tmp_path / f"worker-{number}").touch()

    class Plain(Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return torch.ones(2), index

    samples = as_samples(
        DataLoader(Plain(), batch_size=4, collate_fn=collate, num_workers=1, worker_init_fn=start), "training"
    )
    found = list(samples.batches([(torch.arange(4), 0), (torch.arange(4, 8), 0)]))
    assert all(bool((images == 2).all()) for images, _ in found)
    assert [path.name for path in tmp_path.iterdir()] == ["worker-0"]
