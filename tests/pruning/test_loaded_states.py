"""A pruner's state is loaded at the start of a run, whole, or refused in one line."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from support.attaching import quiet_run, sgd_of
from support.digits import attached, convolutional, same, train
from trainonce import PrunerError
from trainonce.pruning import policies


def test_a_state_is_loaded_before_the_first_step():
    model = convolutional(8)
    optimizer = sgd_of(model)
    pruner = quiet_run(model, optimizer)
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
    pruner = attached(model, sgd_of(model), 130)
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
    state = quiet_run(other, sgd_of(other)).state_dict()
    pruner = quiet_run(model, sgd_of(model), policy=policies.Taylor())
    with pytest.raises(PrunerError, match=r"^the pruner's state is not one of Taylor[^\n]*$"):
        pruner.load_state_dict(state)


def test_a_state_may_be_loaded_over_another_that_was_only_loaded():
    """A reader of checkpoints that tries the newest first.

    What the first state had decided is gone with the second.
    """
    model = convolutional(8)
    optimizer = sgd_of(model)
    pruner = quiet_run(model, optimizer, shrink=False, policy=policies.StaticSalience())
    fresh = copy.deepcopy(pruner.state_dict())
    train(model, optimizer, pruner, steps=range(40), size=8)
    late = copy.deepcopy(pruner.state_dict())
    other = convolutional(8)
    twice = quiet_run(other, sgd_of(other), shrink=False, policy=policies.StaticSalience())
    twice.load_state_dict(late)
    twice.load_state_dict(fresh)
    assert same(twice.state_dict(), fresh)
