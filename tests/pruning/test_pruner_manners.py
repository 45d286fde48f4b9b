"""What a pruner refuses, and what it says once."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainonce
from support.attaching import quiet_run
from support.choices import POLICIES, sgd
from support.digits import attached, batch, convolutional, same, train
from trainonce import BudgetError, PrunerError, Schedule, ShortRunWarning


def portrait(model: nn.Module, pruner: trainonce.Pruner) -> dict[str, Any]:
    return {"model": copy.deepcopy(model.state_dict()), "pruner": copy.deepcopy(pruner.state_dict())}


def test_a_short_run_says_so():
    model = convolutional(12)
    with pytest.warns(
        ShortRunWarning,
        match=r"^few updates: the controller gets 4 in [^\n]*close to its starting point[^\n]*$",
    ) as said:
        trainonce.attach(
            model, sgd(model.parameters()), example=batch(0, 2)[0], keep_flops=0.5, total_steps=100
        )
    (warning,) = said
    assert isinstance(warning.message, ShortRunWarning)
    assert warning.message.num_updates == 4
    assert f"total_steps={warning.message.enough_steps} would give it enough" in str(warning.message)
    assert "random" not in str(warning.message)
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = convolutional(12)
        quiet_run(other, sgd(other.parameters()))
        attached(model, sgd(model.parameters()), 300)


@pytest.mark.parametrize("total_steps", [0, -5, 10.5, "1000", None, True])
def test_what_is_no_number_of_steps_is_refused(total_steps: Any):
    model = convolutional(12)
    with pytest.raises(PrunerError, match=r"^total_steps must be [^\n]*$"):
        trainonce.attach(
            model, sgd(model.parameters()), example=batch(0, 2)[0], keep_flops=0.5, total_steps=total_steps
        )


def test_a_run_without_a_number_of_steps_is_refused():
    model, images = convolutional(12), batch(0, 2)[0]
    with pytest.raises(TypeError, match="total_steps"):
        trainonce.attach(model, sgd(model.parameters()), example=images, keep_flops=0.5)  # type: ignore


@pytest.mark.parametrize("budgets", [{}, {"keep_flops": 0.5, "keep_params": 0.5}])
def test_one_budget_is_wanted(budgets: dict[str, float]):
    model = convolutional(12)
    with pytest.raises(BudgetError, match=r"^pass either keep_flops or keep_params[^\n]*$"):
        trainonce.attach(model, sgd(model.parameters()), example=batch(0, 2)[0], total_steps=1000, **budgets)


@pytest.mark.parametrize("share", [0, -0.2, 1.2, 1e-9, float("nan")])
@pytest.mark.parametrize("budget", ["keep_flops", "keep_params"])
def test_a_share_that_can_not_be_is_refused(budget: str, share: float):
    model = convolutional(12)
    optimizer = sgd(model.parameters())
    with pytest.raises(BudgetError, match=rf"^{budget}[^\n]*$"):
        trainonce.attach(model, optimizer, example=batch(0, 2)[0], total_steps=1000, **{budget: share})
    assert not optimizer._optimizer_step_post_hooks, "a refused run leaves no hook behind"


def test_an_optimizer_of_another_model_is_refused():
    model, other = convolutional(12), convolutional(12)
    with pytest.raises(PrunerError, match=r"^this SGD trains none of the model's parameters[^\n]*$"):
        attached(model, sgd(other.parameters()), 300)
    with pytest.raises(PrunerError, match=r"^optimizer must be a torch.optim.Optimizer, got str[^\n]*$"):
        attached(model, "sgd", 300)


def test_steps_beyond_the_last_are_said_once_and_change_nothing():
    model = convolutional(12)
    optimizer = sgd(model.parameters())
    pruner = quiet_run(model, optimizer)
    train(model, optimizer, pruner, steps=range(60), size=8)
    before = portrait(model, pruner)
    with pytest.warns(RuntimeWarning, match=r"^step\(\) was called more than total_steps=60 times[^\n]*$"):
        assert pruner.step() is False
    # A second warning would fail the test.
    assert pruner.step() is False
    assert same(portrait(model, pruner), before)
    train(model, optimizer, pruner, steps=range(60, 63), size=8)
    assert pruner.finish() is model


def test_a_step_after_finish_is_refused():
    model = convolutional(12)
    optimizer = sgd(model.parameters())
    pruner = quiet_run(model, optimizer)
    train(model, optimizer, pruner, steps=range(60), size=8)
    assert pruner.finish() is pruner.finish()
    with pytest.raises(PrunerError, match=r"^this pruner has finished[^\n]*$"):
        pruner.step()


@pytest.mark.parametrize("num_steps", [0, 20, 30])
def test_finishing_before_the_zeros_is_refused(num_steps: int):
    model = convolutional(12)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    pruner = quiet_run(model, optimizer)
    train(model, optimizer, pruner, steps=range(num_steps), size=8)
    before = portrait(model, pruner)
    with pytest.raises(PrunerError, match=rf"^finish\(\) was called after {num_steps} of 60 steps[^\n]*$"):
        pruner.finish()
    assert same(portrait(model, pruner), before)
    train(model, optimizer, pruner, steps=range(num_steps, 60), size=8)
    assert pruner.finish() is model


def test_finishing_early_but_after_the_zeros_is_allowed():
    model = convolutional(12)
    optimizer = sgd(model.parameters())
    pruner = quiet_run(model, optimizer)
    train(model, optimizer, pruner, steps=range(45), size=8)
    assert pruner.shrunk
    assert pruner.finish() is model


@pytest.mark.parametrize("closure", [None, 3, "loss"])
def test_a_controller_that_is_due_needs_a_closure(closure: Any):
    model = convolutional(12)
    optimizer = sgd(model.parameters())
    pruner = attached(
        model,
        optimizer,
        130,
        schedule=Schedule(search_from=3, shrink_from=40, settle_from=70, update_every=1),
    )
    for _ in range(3):
        pruner.step()
    before = portrait(model, pruner)
    with pytest.raises(PrunerError, match=r"^the controller learns in this step: call step\(loss\)[^\n]*$"):
        pruner.step(closure)
    assert same(portrait(model, pruner), before)


def searching(name: str) -> tuple[nn.Module, trainonce.Pruner]:
    """A model whose controller is due in the first step."""
    model = convolutional(12)
    schedule = Schedule(search_from=0, shrink_from=40, settle_from=70, update_every=1)
    return model, attached(model, sgd(model.parameters()), 130, policy=POLICIES[name](), schedule=schedule)


@pytest.mark.parametrize(
    "result", [None, 1.0, torch.ones(2), torch.ones(())], ids=["none", "float", "vector", "constant"]
)
@pytest.mark.parametrize("name", ["anchored", "controller"])
def test_a_closure_without_a_loss_leaves_the_run_as_it_was(name: str, result: Any):
    model, pruner = searching(name)
    before = portrait(model, pruner)
    with pytest.raises(trainonce.LossError, match=r"^[^\n]*$"):
        pruner.step(lambda: result)
    assert same(portrait(model, pruner), before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["anchored", "controller", "free_logits"])
def test_a_loss_that_is_not_finite_is_skipped_and_said_once(name: str, bad: float):
    model, pruner = searching(name)
    images, labels = batch(0, 8)

    def network() -> Any:
        state = copy.deepcopy(pruner.state_dict()["policy"])
        return state["network"], state["moments"]

    pruner.step(lambda: F.cross_entropy(model(images), labels))
    before, weights = network(), copy.deepcopy(model.state_dict())
    with pytest.warns(RuntimeWarning, match=r"^the controller's loss is not finite at step 1;[^\n]*$"):
        pruner.step(lambda: F.cross_entropy(model(images), labels) * bad)
    for _ in range(3):
        # A second warning would fail the test.
        pruner.step(lambda: F.cross_entropy(model(images), labels) * bad)
    assert all(same(left, right) for left, right in zip(network(), before, strict=True))
    assert same(model.state_dict(), weights)
    pruner.step(lambda: F.cross_entropy(model(images), labels))
    assert not same(network()[0], before[0])
