"""What is frozen during a run is left alone, and the budget is kept without it, or not without a word."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainonce
from graphs.subjects import count_macs
from support.digits import attached, batch, convolutional, train
from trainonce import PrunerError, Schedule
from trainonce.pruning import policies
from trainonce.pruning.budget import Budget
from trainonce.pruning.pulling import projection
from trainonce.pruning.units import Units

TOTAL_STEPS = 100
SCHEDULE = Schedule(search_from=5, shrink_from=10, first_cut_from=56, settle_from=56, update_every=1)
TWO_CUTS = Schedule(search_from=5, shrink_from=10, first_cut_from=24, settle_from=56, update_every=1)


def turn_off(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model[1].requires_grad_(False)


def take_out(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    gone = {id(parameter) for parameter in model[1].parameters()}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in gone]


def cut_off(model: nn.Module, _: torch.optim.Optimizer) -> None:
    """No gradient reaches the first two blocks any more."""
    model[2].register_forward_pre_hook(lambda _module, inputs: tuple(value.detach() for value in inputs))


def cut_off_all_but_the_head(model: nn.Module, _: torch.optim.Optimizer) -> None:
    model[4].register_forward_pre_hook(lambda _module, inputs: tuple(value.detach() for value in inputs))


WAYS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], None]] = {
    "turned_off": turn_off,
    "taken_out": take_out,
    "cut_off": cut_off,
}
every_way = pytest.mark.parametrize("freeze", list(WAYS.values()), ids=list(WAYS))
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "half_space": {"pull": trainonce.HalfSpace(), "policy": policies.StaticSalience()},
    "adam_metric": {"pull": projection.AdamMetric(), "policy": policies.PenalizeAll()},
}


def begun(width: int = 12, **settings: Any) -> tuple[nn.Module, torch.optim.Optimizer, trainonce.Pruner]:
    model = convolutional(width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    settings = {"schedule": SCHEDULE, "round_to": 1, "keep_flops": 0.6} | settings
    return model, optimizer, attached(model, optimizer, TOTAL_STEPS, **settings)


def weights(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def unchanged(module: nn.Module, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(parameter, before[name]) for name, parameter in module.named_parameters())


@every_way
@pytest.mark.parametrize("settings", list(SETTINGS.values()), ids=list(SETTINGS))
def test_what_is_frozen_in_the_search_is_not_pulled_and_the_budget_is_kept(
    freeze: Any, settings: dict[str, Any]
):
    model, optimizer, pruner = begun(**copy.deepcopy(settings))
    image = batch(0, 1)[0]
    total = count_macs(model, image)
    train(model, optimizer, pruner, steps=range(14), size=8)
    freeze(model, optimizer)
    frozen = weights(model[1])
    with pytest.warns(
        RuntimeWarning, match=r"^[^\n]* is no longer trained \([^\n]*\): the \d+ units [^\n]*$"
    ):
        train(model, optimizer, pruner, steps=range(14, TOTAL_STEPS), size=8)
    small = pruner.finish()
    assert pruner.alive["1.0"] == (24, 24)
    assert count_macs(small, image) <= 0.6 * total
    assert model[1][0].out_channels == 24
    assert torch.equal(model[1][0].weight, frozen["0.weight"][:, pruner.masks["0.0"].bool()])
    assert torch.equal(model[1][1].weight, frozen["1.weight"])


def test_while_it_is_frozen_the_group_says_why():
    model, optimizer, pruner = begun()
    train(model, optimizer, pruner, steps=range(14), size=8)
    turn_off(model, optimizer)
    with pytest.warns(
        RuntimeWarning, match=r"^1\.0\.weight and \d more is no longer trained \(requires_grad is False\)"
    ):
        train(model, optimizer, pruner, steps=range(14, 18), size=8)
    assert "requires_grad is False" in pruner.kept_because["1.0"]
    assert bool(pruner.masks["1.0"].all())
    model[1].requires_grad_(True)
    train(model, optimizer, pruner, steps=range(18, 20), size=8)
    assert "1.0" not in pruner.kept_because


@every_way
def test_frozen_once_it_is_decided_others_go_instead(freeze: Any):
    model, optimizer, pruner = begun()
    image = batch(0, 1)[0]
    total = count_macs(model, image)
    train(model, optimizer, pruner, steps=range(56), size=8)
    assert pruner.phase == "settle"
    assert pruner.alive["1.0"][0] < 24
    freeze(model, optimizer)
    frozen = weights(model[1])
    with pytest.warns(RuntimeWarning) as said:
        train(model, optimizer, pruner, steps=range(56, TOTAL_STEPS), size=8)
    words = [str(warning.message) for warning in said]
    assert sum("units are kept, and others dropped instead" in line for line in words) == 1
    assert all(warning.filename.endswith("digits.py") for warning in said), "it points at the user's loop"
    pruner.finish()
    assert pruner.alive["1.0"] == (24, 24)
    assert count_macs(model, image) <= 0.6 * total
    assert torch.equal(model[1][1].weight, frozen["1.weight"])


def test_frozen_at_the_first_cut_it_is_given_back():
    model, optimizer, pruner = begun(schedule=TWO_CUTS)
    image = batch(0, 1)[0]
    total = count_macs(model, image)
    train(model, optimizer, pruner, steps=range(24), size=8)
    turn_off(model, optimizer)
    with pytest.warns(RuntimeWarning):
        train(model, optimizer, pruner, steps=range(24, TOTAL_STEPS), size=8)
    pruner.finish()
    assert len(pruner.cuts) == 2
    assert pruner.alive["1.0"] == (24, 24)
    assert count_macs(model, image) <= 0.6 * total


@pytest.mark.parametrize("at", [14, 56], ids=["in_the_search", "once_it_is_decided"])
def test_a_budget_that_frozen_weights_forbid_is_refused_by_name_and_reached_when_they_are_free(at: int):
    model, optimizer, pruner = begun(keep_flops=0.2)
    image = batch(0, 1)[0]
    total = count_macs(model, image)
    train(model, optimizer, pruner, steps=range(at), size=8)
    model[:3].requires_grad_(False)
    frozen = weights(model[:3])
    with pytest.warns(RuntimeWarning) as said:
        train(model, optimizer, pruner, steps=range(at, TOTAL_STEPS), size=8)
    words = [str(warning.message) for warning in said]
    assert [line.partition(":")[0] for line in words if "reached" in line] == [
        "keep_flops=0.2 can't be reached while 0.0.weight and 8 more can't be trained"
    ]
    assert len(words) == 2, "once that it is frozen, once what follows from it"
    assert unchanged(model[:3], frozen)
    with pytest.raises(
        PrunerError,
        match=r"^finish\(\) was called after 100 of 100 steps, but 0\.0\.weight can't be trained[^\n]*$",
    ):
        pruner.finish()
    assert unchanged(model[:3], frozen)
    model[:3].requires_grad_(True)
    F.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
    optimizer.step()
    assert count_macs(pruner.finish(), image) <= 0.2 * total


def test_with_gradients_in_the_head_alone_nothing_before_it_is_pulled():
    model, optimizer, pruner = begun()
    train(model, optimizer, pruner, steps=range(14), size=8)
    cut_off_all_but_the_head(model, optimizer)
    frozen = weights(model[:3])
    with pytest.warns(RuntimeWarning) as said:
        train(model, optimizer, pruner, steps=range(14, TOTAL_STEPS), size=8)
    assert unchanged(model[:3], frozen)
    assert "can't be reached while 0.0.weight and 8 more can't be trained" in str(said[-1].message)
    with pytest.raises(
        PrunerError, match=r"^finish\(\) was called [^\n]* got no gradient in the last \d+ steps[^\n]*$"
    ):
        pruner.finish()


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("round_to", [1, None])
def test_the_budget_is_met_with_whole_groups_that_must_stay(share: float, round_to: int | None):
    model = convolutional(24)
    units = Units.of(trainonce.inspect(model, batch(0, 2)[0]), dict(model.named_parameters()).keys())
    budget = Budget.of_flops(units, share, round_to)
    for number in range(len(units.groups)):
        required = units.group_of == number
        law = budget.requiring(required)
        scores = torch.rand(len(units), generator=torch.Generator().manual_seed(number))
        assert law.is_reachable == (float(law.cost(law.least())) <= law.target)
        if law.is_reachable:
            masks = law.choose(scores)
            assert bool(masks[required].all())
            assert law.share_of(masks) <= share
            assert law.share_of(masks) >= 0.9 * share or bool(masks.all())


def test_a_layer_without_a_gradient_now_and_then_is_no_frozen_one():
    """Layers that are dropped at random: the run is as good as any, nothing is said, the budget is kept."""
    model, optimizer, pruner = begun()
    image = batch(0, 1)[0]
    total = count_macs(model, image)
    for step in range(TOTAL_STEPS):
        images, labels = batch(step, 8)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        if step % 3:
            for parameter in model[1].parameters():
                parameter.grad = None
        optimizer.step()
        pruner.step(lambda: F.cross_entropy(model(images), labels))  # noqa: B023 - called inside step
    pruner.finish()
    assert pruner.alive["1.0"][0] < 24
    assert count_macs(model, image) <= 0.6 * total


def test_a_step_without_a_gradient_pulls_nothing_of_that_layer():
    model, optimizer, pruner = begun(policy=policies.StaticSalience())
    train(model, optimizer, pruner, steps=range(30), size=8)
    before = weights(model[1])
    images, labels = batch(30, 8)
    optimizer.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    for parameter in model[1].parameters():
        parameter.grad = None
    optimizer.step()
    assert unchanged(model[1], before)
    pruner.step()


def test_freezing_after_the_cut_needs_no_word():
    model, optimizer, pruner = begun()
    train(model, optimizer, pruner, steps=range(70), size=8)
    assert pruner.shrunk
    turn_off(model, optimizer)
    train(model, optimizer, pruner, steps=range(70, TOTAL_STEPS), size=8)
    assert pruner.finish() is model


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_frozen_run_resumes_with_the_same_bits():
    def until(stop: int, model: nn.Module, optimizer: Any, pruner: Any, first: int = 0) -> None:
        for step in range(first, stop):
            if step == 14:
                cut_off(model, optimizer)
            train(model, optimizer, pruner, steps=range(step, step + 1), size=8)

    finals = []
    for stop in (TOTAL_STEPS, 20, 30):
        model, optimizer, pruner = begun()
        until(stop, model, optimizer, pruner)
        if stop < TOTAL_STEPS:
            states = [copy.deepcopy(part.state_dict()) for part in (pruner, model, optimizer)]
            model, optimizer, pruner = begun()
            cut_off(model, optimizer)
            for part, state in zip((pruner, model, optimizer), states, strict=True):
                part.load_state_dict(state)
            until(TOTAL_STEPS, model, optimizer, pruner, first=stop)
        finals.append(pruner.finish().state_dict())
    for final in finals[1:]:
        assert all(torch.equal(tensor, finals[0][name]) for name, tensor in final.items())


def test_two_halves_that_are_trained_in_turn():
    """A GAN's loop: the half that is pruned is frozen whenever the pruner is called."""
    model, optimizer, pruner = begun()
    for step in range(TOTAL_STEPS):
        images, labels = batch(step, 8)
        model.requires_grad_(True)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        model.requires_grad_(False)
        pruner.step(lambda: F.cross_entropy(model(images), labels))  # noqa: B023 - called inside step
        assert not any(parameter.requires_grad for parameter in model.parameters())
    assert pruner.finish() is model
    assert pruner.alive["1.0"][0] < 24
