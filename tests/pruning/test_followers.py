"""Followers are cut with the model: the average after a cut is the average of the cut model, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import trainonce
from support.averages import AVERAGES, Caching, averaging, like, narrowed, same_update, update
from support.digits import attached, convolutional, train
from trainonce import PrunerError, Schedule
from trainonce.pruning import policies

SCHEDULE = Schedule(search_from=5, shrink_from=10, first_cut_from=20, settle_from=35, update_every=1)
STEPS = 60
WIDTH = 13
"""Of the models in this file only: what another test has left alive is no copy of them."""


def begun(**settings: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = convolutional(WIDTH)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def with_pruner(model: nn.Module, optimizer: Any, **settings: Any) -> trainonce.Pruner:
    return attached(
        model, optimizer, STEPS, **{"policy": policies.FilterNorm(), "schedule": SCHEDULE} | settings
    )


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "found"])
@pytest.mark.parametrize("kind", list(AVERAGES))
def test_the_average_of_a_cut_model_is_the_cut_of_the_average(kind: str, is_named: bool):
    """A second average of plain tensors, narrowed by indexing, goes through the same numbers."""
    make, place = AVERAGES[kind]
    if kind.startswith("own") and not is_named:
        pytest.skip("an average of one's own has to be named")
    model, optimizer = begun()
    average = make(model)
    pruner = with_pruner(model, optimizer, **({"followers": [average]} if is_named else {}))
    inner = getattr(average, place)
    parts, num_cuts = [id(part) for part in inner.parameters()], 0
    for step in range(STEPS):
        saved = {}

        def before() -> None:
            saved.update(copy.deepcopy(inner.state_dict()))  # noqa: B023 - called in this round

        train(model, optimizer, pruner, steps=range(step, step + 1), size=8, before=before)
        if len(pruner.cuts) > num_cuts:
            num_cuts += 1
            expected = narrowed(saved, pruner.cuts[-1])
            now = inner.state_dict()
            assert now.keys() == expected.keys()
            assert all(torch.equal(now[name], expected[name]) for name in expected)
            assert same_update(average, like(average, place, model), model, place), "tensors went stale"
        update(average, model)
    small = pruner.finish()
    assert num_cuts == 2
    assert [id(part) for part in inner.parameters()] == parts
    assert {name: part.shape for name, part in inner.state_dict().items()} == {
        name: part.shape for name, part in small.state_dict().items()
    }
    assert (
        trainonce.inspect(inner, torch.zeros(2, 1, 8, 8)).macs
        == trainonce.inspect(small, torch.zeros(2, 1, 8, 8)).macs
    )


def test_an_average_inside_a_larger_module_is_cut():
    """Lightning's averages are of the module around the model."""
    model, optimizer = begun()
    outer = nn.ModuleDict({"net": model, "loss": nn.Linear(2, 2)})
    average = AveragedModel(outer)
    pruner = with_pruner(model, optimizer)
    train(
        model,
        optimizer,
        pruner,
        steps=range(STEPS),
        size=8,
        after=lambda *_: average.update_parameters(outer),
    )
    small = pruner.finish()
    assert average.module["net"][1][0].weight.shape == small[1][0].weight.shape
    assert average.module["loss"].weight.shape == (2, 2)
    assert int(average.n_averaged) == STEPS


def test_an_average_that_has_not_begun_is_cut_too():
    """Stochastic weight averaging starts after both cuts."""
    model, optimizer = begun()
    average = AveragedModel(model)
    pruner = with_pruner(model, optimizer)

    def after(step: int, _cut: bool) -> None:
        if step >= 50:
            average.update_parameters(model)

    train(model, optimizer, pruner, steps=range(STEPS), size=8, after=after)
    assert average.module[1][0].weight.shape == pruner.finish()[1][0].weight.shape


@pytest.mark.parametrize("stop", [30, 50])
@pytest.mark.parametrize("order", ["attach first", "restore first"])
def test_a_run_with_an_average_resumes_bit_for_bit(stop: int, order: str):
    def built() -> tuple[nn.Module, Any, AveragedModel]:
        model, optimizer = begun()
        return model, optimizer, AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))

    model, optimizer, average = built()
    pruner = with_pruner(model, optimizer)
    saved: list[Any] = []

    def after(step: int, _cut: bool) -> None:
        average.update_parameters(model)
        if step + 1 == stop:
            things = pruner, model, optimizer, average
            saved.extend(copy.deepcopy([thing.state_dict() for thing in things]))

    train(model, optimizer, pruner, steps=range(STEPS), size=8, after=after)
    pruner.finish()
    assert saved[0]["cuts"]
    again, other, second = built()
    if order == "attach first":
        resumed = with_pruner(again, other, followers=[second])
        resumed.load_state_dict(saved[0])
    else:
        trainonce.restore(again, saved[0], followers=[second])
        resumed = with_pruner(again, other, followers=[second])
        resumed.load_state_dict(saved[0])
    for thing, state in zip((again, other, second), saved[1:], strict=True):
        thing.load_state_dict(state)
    train(
        again,
        other,
        resumed,
        steps=range(stop, STEPS),
        size=8,
        after=lambda *_: second.update_parameters(again),
    )
    resumed.finish()
    wanted = average.state_dict()
    assert all(torch.equal(part, wanted[name]) for name, part in second.state_dict().items())


@pytest.mark.parametrize("order", ["attach first", "restore first"])
@pytest.mark.parametrize("stop", [15, 30])
def test_an_average_that_rarely_moves_follows_in_a_resumed_run(order: str, stop: int):
    """Stochastic weight averaging: it differs from the model, and stays so beyond the next cut."""

    def built() -> tuple[nn.Module, Any, AveragedModel]:
        model, optimizer = begun()
        return model, optimizer, AveragedModel(model)

    def one_half(thing: nn.Module, optimizer: Any, average: Any, pruner: Any, steps: range) -> None:
        def after(step: int, _cut: bool) -> None:
            if step in (5, 14, 50):
                average.update_parameters(thing)

        train(thing, optimizer, pruner, steps=steps, size=8, after=after)

    model, optimizer, average = built()
    pruner = with_pruner(model, optimizer)
    one_half(model, optimizer, average, pruner, range(stop))
    saved = copy.deepcopy([thing.state_dict() for thing in (pruner, model, optimizer, average)])
    one_half(model, optimizer, average, pruner, range(stop, STEPS))
    again, other, second = built()
    if order == "attach first":
        resumed = with_pruner(again, other)
        resumed.load_state_dict(saved[0])
        for thing, state in zip((again, other, second), saved[1:], strict=True):
            thing.load_state_dict(state)
    else:
        trainonce.restore(again, saved[0])
        for thing, state in zip((again, other, second), saved[1:], strict=True):
            thing.load_state_dict(state)
        resumed = with_pruner(again, other)
        resumed.load_state_dict(saved[0])
    one_half(again, other, second, resumed, range(stop, STEPS))
    wanted = average.state_dict()
    assert all(torch.equal(part, wanted[name]) for name, part in second.state_dict().items())
    assert second.module[1][0].weight.shape == resumed.finish()[1][0].weight.shape


def refused(words: str, followers: Any) -> None:
    model, optimizer = begun()
    with pytest.raises(PrunerError, match=rf"^{words}[^\n]*$"):
        with_pruner(model, optimizer, followers=followers)


def test_what_is_no_follower_is_refused():
    refused(
        "followers must be a list of averaged copies, got AveragedModel", averaging()(convolutional(WIDTH))
    )
    refused("followers must be a list", "ema")
    refused("the follower dict holds no copy of this model", [{"ema": convolutional(WIDTH)}])
    refused("the follower NoneType holds no copy", [None])
    refused("the follower AveragedModel holds no copy", [averaging()(convolutional(WIDTH + 1))])
    refused("the follower Linear holds no copy", [nn.Linear(2, 2)])


def test_the_model_itself_is_no_follower():
    model, optimizer = begun()
    with pytest.raises(PrunerError, match="the follower Sequential holds no copy of this model"):
        with_pruner(model, optimizer, followers=[model])
    with pytest.raises(PrunerError, match="the follower DataParallel holds no copy of this model"):
        with_pruner(model, optimizer, followers=[nn.DataParallel(model)])


def test_a_follower_that_changes_is_refused_at_the_cut_and_nothing_is_cut():
    model, optimizer = begun()
    average = averaging()(model)
    pruner = with_pruner(model, optimizer, followers=[average])
    train(model, optimizer, pruner, steps=range(15), size=8)
    average.module[1][0] = nn.Conv2d(WIDTH, 3, 3)
    with pytest.raises(PrunerError, match=r"^the follower AveragedModel holds no copy of this model"):
        train(model, optimizer, pruner, steps=range(15, STEPS), size=8)
    assert not pruner.cuts
    assert model[1][0].out_channels == 2 * WIDTH


class Parts(Caching):
    """Keeps a flat view of its first weight."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.flat = {"first": [self.ema[0][0].weight.detach().flatten()]}


def test_parts_of_weights_that_would_go_stale_are_refused():
    model, optimizer = begun()
    average = Parts(model)
    pruner = with_pruner(model, optimizer, followers=[average])
    with pytest.raises(PrunerError, match=r"^the follower Parts keeps parts of weights in 'flat'"):
        train(model, optimizer, pruner, steps=range(STEPS), size=8)
    assert not pruner.cuts
    assert average.ema[1][0].out_channels == model[1][0].out_channels == 2 * WIDTH


def test_followers_are_whole_again_if_the_model_cant_be_cut(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise trainonce.PlanError("not today")

    model, optimizer = begun()
    average = Caching(model)
    pruner = with_pruner(model, optimizer, followers=[average])
    monkeypatch.setattr("trainonce.pruning.cuts.shrink", refuse)
    with pytest.warns(RuntimeWarning, match="could not be cut at step [0-9]+: not today"):
        train(model, optimizer, pruner, steps=range(STEPS), size=8, after=lambda *_: average.update(model))
    monkeypatch.undo()
    assert average.ema[1][0].out_channels == 2 * WIDTH
    assert average.ema[1][0].weight.shape == model[1][0].weight.shape
    assert pruner.finish()[1][0].weight.shape == average.ema[1][0].weight.shape
