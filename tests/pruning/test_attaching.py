"""One pruner for one model and one optimizer: a second takes the place of the first.

What can't work is refused in one line.
"""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import trainonce
from support.attaching import num_hooks, quiet_run, sgd_of
from support.digits import attached, batch, convolutional, predictions, same, train
from trainonce import BudgetError, PrunerError, Schedule
from trainonce.pruning import policies
from trainonce.pruning.policies import Policy


def test_attached_twice_the_run_is_that_of_the_second():
    """A notebook cell that was run twice.

    No hook of the first is left, and the result is the same as without it.
    """
    finals = []
    for times in (1, 2, 3):
        model = convolutional(8)
        optimizer = sgd_of(model)
        for _ in range(times):
            pruner = quiet_run(model, optimizer)
        assert num_hooks(optimizer) == 2
        train(model, optimizer, pruner, steps=range(60), size=8)
        finals.append(predictions(pruner.finish()))
        assert num_hooks(optimizer) == 0
    assert torch.equal(finals[0], finals[1])
    assert torch.equal(finals[0], finals[2])


@pytest.mark.parametrize("num_steps", [5, 45], ids=["dense", "cut"])
def test_a_pruner_that_had_begun_is_replaced_with_a_word(num_steps: int):
    model = convolutional(8)
    optimizer = sgd_of(model)
    first = quiet_run(model, optimizer)
    train(model, optimizer, first, steps=range(num_steps), size=8)
    words = (
        rf"^this pruner replaces one that had made {num_steps} "
        rf"steps{', which had cut the model' if first.cuts else '. '}[^\n]*$"
    )
    with pytest.warns(RuntimeWarning, match=words) as said:
        second = attached(
            model, optimizer, 60, policy=policies.FilterNorm(), schedule=Schedule.paper(), keep_flops=0.8
        )
    assert len(said) == 1
    assert not first.is_attached
    assert second.is_attached
    train(model, optimizer, second, steps=range(60), size=8)
    assert second.finish() is model
    for method in (first.step, first.finish, lambda: first.load_state_dict(second.state_dict())):
        with pytest.raises(PrunerError, match=r"^\w+\(\) was called after detach\(\)[^\n]*$"):
            method()


def test_with_a_new_optimizer_the_new_pruner_replaces_the_old():
    model = convolutional(8)
    old = sgd_of(model)
    quiet_run(model, old)
    optimizer = sgd_of(model)
    pruner = quiet_run(model, optimizer)
    assert num_hooks(old) == 0
    train(model, optimizer, pruner, steps=range(60), size=8)
    assert pruner.finish() is model


def test_two_models_of_one_optimizer_have_a_pruner_each():
    first, second = convolutional(8), convolutional(6)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
    pruners = quiet_run(first, optimizer), quiet_run(second, optimizer)
    for step in range(60):
        images, labels = batch(step, 8)
        optimizer.zero_grad()
        (F.cross_entropy(first(images), labels) + F.cross_entropy(second(images), labels)).backward()
        optimizer.step()
        for pruner in pruners:
            pruner.step()
    assert [pruner.finish() for pruner in pruners] == [first, second]
    assert all(pruner.shrunk for pruner in pruners)


def test_a_refused_attach_leaves_the_pruner_that_is_there():
    model = convolutional(8)
    optimizer = sgd_of(model)
    pruner = quiet_run(model, optimizer)
    with pytest.raises(BudgetError):
        quiet_run(model, optimizer, keep_flops=1e-9)
    assert pruner.is_attached
    assert num_hooks(optimizer) == 2


def test_two_optimizers_that_share_a_model_can_not_both_have_a_pruner():
    model = convolutional(8)
    first, second = torch.optim.SGD(model[:2].parameters(), lr=0.1), torch.optim.AdamW(model[2:].parameters())
    pruner = quiet_run(model, first, keep_flops=0.8)
    with pytest.raises(
        PrunerError, match=r"^this model has a pruner on another optimizer \(SGD\)[^\n]* detach\(\)[^\n]*$"
    ):
        quiet_run(model, second, keep_flops=0.9)
    assert pruner.is_attached
    assert num_hooks(second) == 0
    pruner.detach()
    quiet_run(model, second, keep_flops=0.9)


def test_what_is_garbage_or_finished_is_in_nobodys_way():
    model = convolutional(8)
    first, second = torch.optim.SGD(model[:2].parameters(), lr=0.1), torch.optim.AdamW(model[2:].parameters())
    quiet_run(model, first, keep_flops=0.8)
    del first
    quiet_run(model, second, keep_flops=0.9).detach()
    optimizer = sgd_of(model)
    pruner = quiet_run(model, optimizer)
    train(model, optimizer, pruner, steps=range(60), size=8)
    pruner.finish()
    assert quiet_run(model, optimizer, keep_flops=0.9).is_attached


def test_nothing_is_kept_alive():
    model = convolutional(8)
    optimizer = sgd_of(model)
    watched = weakref.ref(model), weakref.ref(quiet_run(model, optimizer))
    assert watched[1]() is not None, "the hooks hold it"
    del model, optimizer
    gc.collect()
    assert watched[0]() is None
    assert watched[1]() is None


def test_detached_the_optimizer_and_the_model_are_as_if_never_attached():
    model, plain = convolutional(8), convolutional(8)
    optimizer, other = sgd_of(model), sgd_of(plain)
    pruner = quiet_run(model, optimizer)
    for step in range(30):
        if step == 12:
            pruner.detach()
            pruner.detach()
            before = copy.deepcopy(pruner.state_dict())
            plain.load_state_dict(model.state_dict())
            other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for net, its in ((model, optimizer), (plain, other)):
            its.zero_grad()
            F.cross_entropy(net(batch(step, 8)[0]), batch(step, 8)[1]).backward()
            its.step()
        if step < 12:
            pruner.step()
    assert same(model.state_dict(), plain.state_dict())
    assert same(pruner.state_dict(), before), "what it knew can still be read"
    assert num_hooks(optimizer) == 0
    for method in (pruner.step, pruner.finish):
        with pytest.raises(PrunerError, match=r"^\w+\(\) was called after detach\(\)[^\n]*$"):
            method()


def test_detaching_after_finish_changes_nothing():
    model = convolutional(8)
    optimizer = sgd_of(model)
    pruner = quiet_run(model, optimizer)
    train(model, optimizer, pruner, steps=range(60), size=8)
    small = pruner.finish()
    pruner.detach()
    assert pruner.finish() is small


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_a_pruner_is_attached_all_the_same(mode: Any):
    model, other = convolutional(8), convolutional(8)
    plain = attached(model, sgd_of(model), 400)
    with mode():
        found = attached(other, sgd_of(other), 400)
    assert all(torch.equal(mask, plain.masks[name]) for name, mask in found.masks.items())


class Curious(Policy):
    """Asks for everything at once."""

    def start(self, search: policies.Search) -> None:
        super().start(search)
        self.at_start = search.progress()

    def scores(self) -> torch.Tensor:
        return torch.arange(len(self.search.units)).double() + self.search.progress()


def test_a_policy_may_ask_how_far_the_search_is_when_it_starts():
    model = convolutional(8)
    policy = Curious()
    quiet_run(model, sgd_of(model), policy=policy)
    assert policy.at_start == 0


def test_a_partition_saves_the_inspection_and_must_be_of_this_model():
    image = torch.randn(1, 3, 8, 8)

    def built(width: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 6, 3), nn.Flatten(), nn.Linear(96, 2)
        )

    def attach(model: nn.Module) -> trainonce.Pruner:
        return trainonce.attach(
            model,
            sgd_of(model),
            example=partition,
            keep_flops=0.5,
            total_steps=60,
            policy=policies.FilterNorm(),
            schedule=Schedule.paper(),
        )

    model = built(12)
    partition = trainonce.inspect(model, image)
    assert attach(model).partition is partition
    for other in (built(13), nn.Sequential(*built(12), nn.Linear(2, 2))):
        with pytest.raises(PrunerError, match=r"^example is a Partition of another model[^\n]*inspect"):
            attach(other)
