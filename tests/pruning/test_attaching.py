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
from support.digits import attached, batch, convolutional, predictions, same, train
from trainonce import BudgetError, PrunerError, Schedule
from trainonce.pruning import policies
from trainonce.pruning.policies import Policy


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def quiet(model: nn.Module, optimizer: Any, **settings: Any) -> trainonce.Pruner:
    return attached(
        model, optimizer, 60, **{"policy": policies.FilterNorm(), "schedule": Schedule.paper()} | settings
    )


def num_hooks(optimizer: torch.optim.Optimizer) -> int:
    return len(optimizer._optimizer_step_post_hooks) + len(optimizer._optimizer_step_pre_hooks)


def test_attached_twice_the_run_is_that_of_the_second():
    """A notebook cell that was run twice.

    No hook of the first is left, and the result is the same as without it.
    """
    finals = []
    for times in (1, 2, 3):
        model = convolutional(8)
        optimizer = sgd(model)
        for _ in range(times):
            pruner = quiet(model, optimizer)
        assert num_hooks(optimizer) == 2
        train(model, optimizer, pruner, steps=range(60), size=8)
        finals.append(predictions(pruner.finish()))
        assert num_hooks(optimizer) == 0
    assert torch.equal(finals[0], finals[1])
    assert torch.equal(finals[0], finals[2])


@pytest.mark.parametrize("num_steps", [5, 45], ids=["dense", "cut"])
def test_a_pruner_that_had_begun_is_replaced_with_a_word(num_steps: int):
    model = convolutional(8)
    optimizer = sgd(model)
    first = quiet(model, optimizer)
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
    old = sgd(model)
    quiet(model, old)
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    assert num_hooks(old) == 0
    train(model, optimizer, pruner, steps=range(60), size=8)
    assert pruner.finish() is model


def test_two_models_of_one_optimizer_have_a_pruner_each():
    first, second = convolutional(8), convolutional(6)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
    pruners = quiet(first, optimizer), quiet(second, optimizer)
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
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    with pytest.raises(BudgetError):
        quiet(model, optimizer, keep_flops=1e-9)
    assert pruner.is_attached
    assert num_hooks(optimizer) == 2


def test_two_optimizers_that_share_a_model_can_not_both_have_a_pruner():
    model = convolutional(8)
    first, second = torch.optim.SGD(model[:2].parameters(), lr=0.1), torch.optim.AdamW(model[2:].parameters())
    pruner = quiet(model, first, keep_flops=0.8)
    with pytest.raises(
        PrunerError, match=r"^this model has a pruner on another optimizer \(SGD\)[^\n]* detach\(\)[^\n]*$"
    ):
        quiet(model, second, keep_flops=0.9)
    assert pruner.is_attached
    assert num_hooks(second) == 0
    pruner.detach()
    quiet(model, second, keep_flops=0.9)


def test_what_is_garbage_or_finished_is_in_nobodys_way():
    model = convolutional(8)
    first, second = torch.optim.SGD(model[:2].parameters(), lr=0.1), torch.optim.AdamW(model[2:].parameters())
    quiet(model, first, keep_flops=0.8)
    del first
    quiet(model, second, keep_flops=0.9).detach()
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    train(model, optimizer, pruner, steps=range(60), size=8)
    pruner.finish()
    assert quiet(model, optimizer, keep_flops=0.9).is_attached


def test_nothing_is_kept_alive():
    model = convolutional(8)
    optimizer = sgd(model)
    watched = weakref.ref(model), weakref.ref(quiet(model, optimizer))
    assert watched[1]() is not None, "the hooks hold it"
    del model, optimizer
    gc.collect()
    assert watched[0]() is None
    assert watched[1]() is None


def test_detached_the_optimizer_and_the_model_are_as_if_never_attached():
    model, plain = convolutional(8), convolutional(8)
    optimizer, other = sgd(model), sgd(plain)
    pruner = quiet(model, optimizer)
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
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    train(model, optimizer, pruner, steps=range(60), size=8)
    small = pruner.finish()
    pruner.detach()
    assert pruner.finish() is small


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "percent": ({"keep_flops": "50%"}, r"keep_flops must be [^\n]* got '50%'\. Did you mean 0\.5\?"),
    "text": ({"keep_flops": "0.5"}, r"keep_flops must be [^\n]* got '0\.5'\. Did you mean 0\.5\?"),
    "percent_without_a_sign": (
        {"keep_flops": 45},
        r"keep_flops must be [^\n]* got 45\. Did you mean 0\.45\?",
    ),
    "words": ({"keep_flops": "half"}, r"keep_flops must be [^\n]* got 'half'\. 0\.45 keeps 45 %"),
    "parameters": (
        {"keep_flops": None, "keep_params": "30 %"},
        r"keep_params must be [^\n]* Did you mean 0\.3\?",
    ),
    "policy_name": ({"policy": "taylor"}, r"policy must be an object such as [^\n]*, got str"),
    "policy_class": (
        {"policy": policies.Taylor},
        r"policy must be an object such as [^\n]*, got the class Taylor; write Taylor\(\)",
    ),
    "schedule": ({"schedule": 0.1}, r"schedule must be a trainonce.Schedule [^\n]*, got float"),
    "strength": ({"strength": 10}, r"strength must be a trainonce.Strength [^\n]*, got int"),
    "pull": ({"pull": "half-space"}, r"pull must be an object such as [^\n]*, got str"),
    "pull_class": (
        {"pull": trainonce.HalfSpace},
        r"pull must be an object such as [^\n]*, got the class HalfSpace",
    ),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_a_setting_of_the_wrong_kind_is_refused_in_one_line(name: str):
    settings, words = WRONG[name]
    model = convolutional(8)
    optimizer = sgd(model)
    with pytest.raises((PrunerError, BudgetError), match=rf"^{words}[^\n]*$"):
        quiet(model, optimizer, **settings)
    assert num_hooks(optimizer) == 0


def test_what_is_no_model_and_what_is_no_optimizer_is_refused_in_one_line():
    model = convolutional(8)
    settings: dict[str, Any] = {"example": batch(0, 2)[0], "keep_flops": 0.5, "total_steps": 1000}
    for thing in ("resnet", None, nn.Linear):
        with pytest.raises(PrunerError, match=r"^model must be an nn.Module, got [^\n]*$"):
            trainonce.attach(thing, sgd(model), **settings)  # type: ignore[arg-type]
    for thing in (None, model, list(model.parameters())):
        with pytest.raises(PrunerError, match=r"^optimizer must be a torch.optim.Optimizer, got [^\n]*$"):
            trainonce.attach(model, thing, **settings)  # type: ignore[arg-type]
    with pytest.raises(trainonce.ModelError, match=r"^[^\n]*got NoneType[^\n]*$"):
        trainonce.attach(model, sgd(model), **settings | {"example": None})


def test_a_budget_that_a_frozen_backbone_forbids_names_what_is_frozen():
    model = convolutional(8)
    model[:3].requires_grad_(False)
    with pytest.raises(
        BudgetError,
        match=r"^keep_flops=0.45 has nothing to cut[^\n]* 3 of the 3 [^\n]*0\.0\.weight, [^\n]*$",
    ):
        quiet(model, sgd(model))
    model[1].requires_grad_(True)
    with pytest.raises(
        BudgetError,
        match=(
            r"^keep_flops=0.1 can't be reached[^\n]* 2 of the 3 [^\n]*frozen or not in the optimizer[^\n]* "
            r"Unfreeze them"
        ),
    ):
        quiet(model, sgd(model), keep_flops=0.1)


def test_a_budget_that_muon_on_the_matrices_forbids_names_what_it_does_not_train():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    muon = torch.optim.Muon([parameter for parameter in model.parameters() if parameter.dim() == 2], lr=0.01)
    with pytest.raises(
        BudgetError,
        match=(
            r"^keep_flops=0.45 has nothing to cut[^\n]* 1 of the 1 [^\n]*\(1\.bias\)\. Unfreeze them, and "
            r"pass them to this optimizer\.$"
        ),
    ):
        quiet(model, muon)


def test_a_budget_that_the_model_itself_forbids_says_why():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(
        BudgetError,
        match=r"^keep_flops=0.5 has nothing to cut[^\n]*of the \d+ groups that are kept: \w+[^\n]*$",
    ):
        trainonce.attach(model, optimizer, example=torch.randn(2, 8), keep_flops=0.5, total_steps=1000)


def test_a_run_of_one_step_is_refused_before_it_is_made():
    model = convolutional(8)
    with pytest.raises(
        PrunerError,
        match=r"^a run of one optimizer step [^\n]* Train longer: more epochs, or smaller batches\.$",
    ):
        attached(model, sgd(model), 1, policy=policies.FilterNorm())
    whole = attached(model, sgd(model), 1, policy=policies.FilterNorm(), keep_flops=1)
    assert whole.is_attached


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_a_pruner_is_attached_all_the_same(mode: Any):
    model, other = convolutional(8), convolutional(8)
    plain = attached(model, sgd(model), 400)
    with mode():
        found = attached(other, sgd(other), 400)
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
    quiet(model, sgd(model), policy=policy)
    assert policy.at_start == 0


def test_a_state_is_loaded_before_the_first_step():
    model = convolutional(8)
    optimizer = sgd(model)
    pruner = quiet(model, optimizer)
    state = copy.deepcopy(pruner.state_dict())
    pruner.load_state_dict(state)
    pruner.load_state_dict(state)
    train(model, optimizer, pruner, steps=range(3), size=8)
    before = copy.deepcopy(pruner.state_dict())
    with pytest.raises(
        PrunerError, match=r"^this pruner has made 3 steps\. Load the state right after attach[^\n]*$"
    ):
        pruner.load_state_dict(state)
    assert same(pruner.state_dict(), before)


def damaged(state: dict[str, Any], key: str) -> list[Any]:
    return [
        {name: value for name, value in state.items() if name != key},
        *(state | {key: wrong} for wrong in ("x", 3.5j, [1])),
    ]


@pytest.mark.parametrize(
    "key", ["num_steps", "total_steps", "decision", "cuts", "pulled", "groups", "policy"]
)
def test_a_damaged_state_is_refused_in_one_line(key: str):
    model = convolutional(8)
    pruner = attached(model, sgd(model), 130)
    before = copy.deepcopy(pruner.state_dict())
    for state in damaged(copy.deepcopy(pruner.state_dict()), key):
        with pytest.raises(PrunerError, match=r"^the pruner's state [^\n]*$"):
            pruner.load_state_dict(state)
        assert pruner.num_steps == 0
    assert {name: before[name] for name in ("num_steps", "decided_at")} == {
        "num_steps": 0,
        "decided_at": None,
    }
    for state in (None, [], "state"):
        with pytest.raises(PrunerError, match=r"^the pruner's state has version None[^\n]*$"):
            pruner.load_state_dict(state)  # type: ignore[arg-type]


def test_the_state_of_another_policy_is_refused_in_one_line():
    model, other = convolutional(8), convolutional(8)
    state = quiet(other, sgd(other)).state_dict()
    pruner = quiet(model, sgd(model), policy=policies.Taylor())
    with pytest.raises(PrunerError, match=r"^the pruner's state is not one of Taylor[^\n]*$"):
        pruner.load_state_dict(state)


def test_a_state_may_be_loaded_over_another_that_was_only_loaded():
    """A reader of checkpoints that tries the newest first.

    What the first state had decided is gone with the second.
    """
    model = convolutional(8)
    optimizer = sgd(model)
    pruner = quiet(model, optimizer, shrink=False, policy=policies.StaticSalience())
    fresh = copy.deepcopy(pruner.state_dict())
    train(model, optimizer, pruner, steps=range(40), size=8)
    late = copy.deepcopy(pruner.state_dict())
    other = convolutional(8)
    twice = quiet(other, sgd(other), shrink=False, policy=policies.StaticSalience())
    twice.load_state_dict(late)
    twice.load_state_dict(fresh)
    assert same(twice.state_dict(), fresh)


def test_a_partition_saves_the_inspection_and_must_be_of_this_model():
    image = torch.randn(1, 3, 8, 8)

    def built(width: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 6, 3), nn.Flatten(), nn.Linear(96, 2)
        )

    def attach(model: nn.Module) -> trainonce.Pruner:
        return trainonce.attach(
            model,
            sgd(model),
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
