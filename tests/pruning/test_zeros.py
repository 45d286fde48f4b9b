"""Units that go are exactly zero in time; units that may stay can come back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from support.attaching import quiet_run
from support.digits import convolutional, predictions, train
from trainonce import Schedule, Strength
from trainonce.pruning import policies
from trainonce.pruning.pulling import projection


@pytest.mark.parametrize("pull", [trainonce.Proximal(), trainonce.HalfSpace(), projection.AdamMetric()])
@pytest.mark.parametrize("learning_rate", [1e-4, 1e-7])
def test_what_goes_is_exactly_zero_at_the_deadline(pull: Any, learning_rate: float):
    model = convolutional(12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    pruner = quiet_run(
        model, optimizer, total_steps=100, pull=pull, shrink=False, strength=Strength(zero_within=0.1)
    )
    weight = model[1][1].weight

    def zeros(step: int, _cut: bool) -> None:
        counts.append(int((weight == 0).sum()))

    counts: list[int] = []
    train(model, optimizer, pruner, steps=range(100), size=8, after=zeros)
    kept = pruner.masks["1.0"]
    assert 0 < int((kept == 0).sum()) < len(kept)
    assert counts[49] == 0, "nothing was at zero before the decision"
    assert set(counts[59:]) == {int((kept == 0).sum())}
    assert torch.equal(weight == 0, kept == 0)


def test_a_learning_rate_that_is_scheduled_to_zero():
    model = convolutional(12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    pruner = quiet_run(model, optimizer, total_steps=100)
    cuts: list[int] = []

    def after(step: int, cut: bool) -> None:
        schedule.step()
        if cut:
            cuts.append(step)

    train(model, optimizer, pruner, steps=range(100), size=16, after=after)
    assert len(cuts) == 1
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0, abs=1e-9)
    assert torch.isfinite(predictions(pruner.finish())).all()


class TwoSides(nn.Module):
    """Hidden units 0 to 9 see only the left half of the input, the others only the right."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 10), nn.Linear(6, 10)
        self.mixed = nn.Linear(20, 20)
        self.head = nn.Linear(20, 3)
        with torch.no_grad():
            self.mixed.weight.copy_(torch.eye(20))
            self.mixed.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.cat([self.left(x[:, :6]), self.right(x[:, 6:])], dim=1).relu()
        return self.head(self.mixed(hidden).relu())


def two_sided_batch(step: int, side: int) -> tuple[Tensor, Tensor]:
    """The label is a linear function of one half of the input."""
    inputs = torch.randn(64, 12, generator=torch.Generator().manual_seed(step))
    weight = torch.randn(6, 3, generator=torch.Generator().manual_seed(side))
    return inputs, (inputs[:, 6 * side : 6 * side + 6] @ weight).argmax(dim=1)


@pytest.mark.parametrize("gentle", [True, False], ids=["gentle", "constant"])
def test_units_that_were_to_go_come_back_when_they_are_needed(gentle: bool):
    """The task needs one half of the units first and the other half later.

    With a gentle pull the mask can follow.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = TwoSides()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    total, turn = 800, 260
    pruner = trainonce.attach(
        model,
        optimizer,
        example=torch.randn(2, 12),
        keep_flops=0.5,
        total_steps=total,
        policy=policies.AnchoredController(policies.FreeLogits, ramp=0.1, learning_rate=0.05),
        schedule=Schedule(
            search_from=20, shrink_from=40, first_cut_from=640, settle_from=640, update_every=2
        ),
        strength=Strength() if gentle else Strength.constant(),
        round_to=1,
    )
    early: dict[str, Tensor] = {}
    for step in range(total):
        side = int(step >= turn)
        inputs, labels = two_sided_batch(step, side)
        held = two_sided_batch(step + 1_000_000, side)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        pruner.step(lambda: F.cross_entropy(model(held[0]), held[1]))  # noqa: B023 - called inside step
        if step == turn - 1:
            early = {name: mask.clone() for name, mask in pruner.masks.items()}
            weight = model.right.weight.detach().clone()
    at_the_end = pruner.masks
    masked = early["right"] == 0
    assert int(masked.sum()) >= 5, "the right side was of no use"
    revived = int((at_the_end["right"][masked] == 1).sum())
    inputs, labels = two_sided_batch(5_000_000, 1)
    correct = float((pruner.finish()(inputs).argmax(dim=1) == labels).float().mean())
    if gentle:
        assert bool(weight[masked].any(dim=1).all()), "masked, but not gone"
        assert revived >= 3
        assert correct > 0.9
    else:
        assert not bool(weight[masked].any()), "gone for good"


@pytest.mark.parametrize("floor", [0.1, 0.0])
def test_while_the_decision_is_open_nothing_goes_below_the_floor(floor: float):
    """A pull that would be enough many times over.

    With a floor, what is masked is small but alive when the search ends.
    """
    model = convolutional(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Schedule(search_from=2, shrink_from=2, first_cut_from=45, settle_from=45, update_every=1)
    pruner = quiet_run(
        model,
        optimizer,
        policy=policies.StaticSalience(),
        schedule=schedule,
        strength=Strength(searching=3.0, floor=floor),
        round_to=1,
    )
    train(model, optimizer, pruner, steps=range(44), size=8)
    masked = pruner.masks["1.0"] == 0
    assert bool(masked.any())
    scales = model[1][1].weight.detach()[masked]
    assert bool((scales != 0).all()) == (floor > 0)
    train(model, optimizer, pruner, steps=range(44, 60), size=8)
    assert pruner.shrunk
