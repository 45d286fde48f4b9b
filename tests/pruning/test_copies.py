"""An averaged copy that nobody knows does not follow a cut.

It is said before anything is lost, what is advised works, and nothing else is taken for one.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import trainonce
from support.digits import attached, batch, convolutional, digits, train
from trainonce import PrunerError, Schedule, Settings
from trainonce.pruning import policies
from trainonce.pruning.guards.copies import Copies

SCHEDULE = Schedule(search_from=5, shrink_from=10, first_cut_from=20, settle_from=35, update_every=1)
WIDTH = 11
"""Of the models in this file only: what another test has left alive is no copy of them."""


def begun(**settings: Any) -> tuple[nn.Module, torch.optim.Optimizer, trainonce.Pruner]:
    model = convolutional(WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return (
        model,
        optimizer,
        attached(model, optimizer, 60, **{"policy": policies.FilterNorm(), "schedule": SCHEDULE} | settings),
    )


def words(kind: str) -> str:
    return (
        rf"^an averaged copy of this model \({kind}[^\n]*\) would not follow [^\n]*followers=\[it\]\), or "
        r"followers=\[\] if it is not an average of this model\.$"
    )


def averaged(model: nn.Module) -> AveragedModel:
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


def by_data(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)


def by_copy(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    with torch.no_grad():
        mine.copy_(0.9 * mine + 0.1 * theirs)


@pytest.mark.parametrize("move", [by_data, by_copy])
def test_a_deepcopy_that_a_loop_of_ones_own_averages_stops_the_run_before_anything_is_lost(
    move: Callable[[torch.Tensor, torch.Tensor], None],
):
    model, optimizer, pruner = begun()
    average = copy.deepcopy(model)

    def after(*_: object) -> None:
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            move(mine, theirs)

    with pytest.raises(PrunerError, match=words("a second Sequential")):
        train(model, optimizer, pruner, steps=range(60), size=8, after=after)
    assert pruner.num_steps == 10
    assert not pruner.cuts
    # What the message says to do.
    pruner.follow(average)
    train(model, optimizer, pruner, steps=range(10, 60), size=8, after=after)
    assert pruner.finish()[1][0].weight.shape == average[1][0].weight.shape


class MyEMA(nn.Module):
    """An average of somebody's own, which nobody can know."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.shadow = copy.deepcopy(model)


def test_an_average_of_ones_own_class_is_named_and_can_be_left_alone():
    model, optimizer, pruner = begun()
    average = MyEMA(model)
    with pytest.raises(PrunerError, match=words("MyEMA")):
        train(model, optimizer, pruner, steps=range(1), size=8)
    model, optimizer, pruner = begun(followers=[])
    with pytest.warns(RuntimeWarning, match=r"^a copy of this model \(MyEMA\) is not cut with it\.") as said:
        train(model, optimizer, pruner, steps=range(60), size=8)
    assert len(said) == 1
    assert said[0].filename.endswith("digits.py")
    assert average.shadow[1][0].out_channels == 2 * WIDTH > pruner.finish()[1][0].out_channels


def test_an_average_that_is_made_later_is_found_at_the_cut_and_nothing_is_cut():
    model, optimizer, pruner = begun()
    train(model, optimizer, pruner, steps=range(19), size=8)
    average = copy.deepcopy(model)

    def after(*_: object) -> None:
        by_data(average[0][0].weight, model[0][0].weight)

    with pytest.raises(PrunerError, match=words("a second Sequential")):
        train(model, optimizer, pruner, steps=range(19, 60), size=8, after=after)
    assert not pruner.cuts
    assert model[1][0].out_channels == average[1][0].out_channels == 2 * WIDTH


def by_hand(model: nn.Module) -> nn.Module:
    """A model that is trained without an optimizer: it has gradients."""
    model.register_forward_pre_hook(lambda *_: None)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return model


def teachers(model: nn.Module) -> Iterator[Any]:
    yield copy.deepcopy(model)
    yield copy.deepcopy(model).requires_grad_(False).eval()
    yield nn.ModuleDict({"baseline": copy.deepcopy(model)})
    yield averaged(convolutional(WIDTH - 1))
    yield nn.DataParallel(model)
    yield {"best": copy.deepcopy(model.state_dict())}
    yield by_hand(copy.deepcopy(model))


def test_teachers_baselines_wrappers_and_averages_of_others_are_not_meant():
    model, optimizer, pruner = begun()
    kept = list(teachers(model))
    # A warning would fail the test.
    train(model, optimizer, pruner, steps=range(60), size=8)
    assert pruner.finish() is model
    assert len(kept) == 7


def test_a_second_model_that_is_trained_itself_is_not_meant():
    model, optimizer, pruner = begun()
    other = convolutional(WIDTH)
    its = torch.optim.SGD(other.parameters(), lr=0.05)
    for step in range(60):
        F.cross_entropy(other(batch(step, 8)[0]), batch(step, 8)[1]).backward()
        its.step()
        its.zero_grad()
        train(model, optimizer, pruner, steps=range(step, step + 1), size=8)
    assert pruner.finish() is model


def test_an_average_that_is_gone_is_not_meant():
    model, optimizer, pruner = begun()
    ring: list[Any] = [MyEMA(model)]
    ring.append(ring)
    del ring
    train(model, optimizer, pruner, steps=range(1), size=8)
    assert pruner.num_steps == 1


def test_the_average_of_an_earlier_run_is_not_cut():
    """It is alive in a notebook, of the same class and shapes, and moves no more."""
    before = convolutional(WIDTH)
    kept = averaged(before)
    with torch.no_grad():
        for parameter in before.parameters():
            parameter.add_(1.0)
    kept.update_parameters(before)
    whole = copy.deepcopy(kept.state_dict())
    model, optimizer, pruner = begun()
    with pytest.warns(RuntimeWarning, match=r"^a copy of this model \(AveragedModel\) is not cut with it\."):
        train(model, optimizer, pruner, steps=range(60), size=8)
    assert pruner.cuts
    assert all(torch.equal(tensor, whole[name]) for name, tensor in kept.state_dict().items())


def test_whose_average_it_is_has_to_be_said_where_two_models_train():
    model, optimizer, pruner = begun()
    other = convolutional(WIDTH)
    its = torch.optim.SGD(other.parameters(), lr=0.05)
    average = averaged(other)

    def after(step: int, _cut: bool) -> None:
        F.cross_entropy(other(batch(step, 8)[0]), batch(step, 8)[1]).backward()
        its.step()
        its.zero_grad()
        average.update_parameters(other)

    with pytest.raises(PrunerError, match=words("AveragedModel, unless it averages the second model")):
        train(model, optimizer, pruner, steps=range(60), size=8, after=after)
    assert average.module[1][0].out_channels == 2 * WIDTH


def test_fits_own_average_follows_and_nothing_is_said():
    images, labels, held_images, held_labels = digits()
    model = convolutional(WIDTH)
    data = (images[:128], labels[:128]), (held_images[:32], held_labels[:32])
    settings = Settings(epochs=4, batch_size=8, model_ema=True, keep_flops=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", trainonce.ShortRunWarning)
        result = trainonce.fit(model, data, settings=settings)
    assert result.model is not model
    assert result.model[1][0].weight.shape == model[1][0].weight.shape
    assert model[1][0].out_channels < 2 * WIDTH


class Proxy:
    """An object that loads something when it is asked for its class, as lazy imports are."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise ImportError("nobody may ask")


def test_looking_around_disturbs_nobody():
    proxy = [Proxy()]
    half_made = nn.Linear.__new__(nn.Linear)
    survey = Copies(convolutional(WIDTH)).survey()
    assert [survey.known, survey.strangers, survey.resting] == [[], [], []]
    assert proxy
    assert "_parameters" not in vars(half_made)
