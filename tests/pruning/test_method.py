"""The paper's method is one word, and is what the paper says."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

import trainonce
from support.digits import batch, convolutional, same, train
from trainonce import HalfSpace, Method, Proximal, PrunerError, Schedule, Strength
from trainonce.pruning import policies
from trainonce.pruning.policies.default import default_policy

TOTAL_STEPS = 150


def trained(**settings: Any) -> tuple[dict[str, Any], list[Any]]:
    """The final weights and the pruner's state along the way."""
    model = convolutional(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with pytest.warns(trainonce.ShortRunWarning):
        pruner = trainonce.attach(
            model, optimizer, example=batch(0, 2)[0], total_steps=TOTAL_STEPS, keep_flops=0.5, **settings
        )
    states: list[Any] = []

    def note(step: int, _cut: bool) -> None:
        if step % 30 == 29:
            states.append(copy.deepcopy(pruner.state_dict()))

    train(model, optimizer, pruner, steps=range(TOTAL_STEPS), size=8, after=note)
    assert len(pruner.cuts) == (1 if settings else 2)
    return dict(pruner.finish().state_dict()), states


def in_parts() -> dict[str, Any]:
    """The paper's constants, as its method section and supplement have them."""
    return {
        "policy": policies.Controller(gamma=4.0, bias=3.0, temperature=0.4, learning_rate=1e-3),
        "schedule": Schedule(
            search_from=0.10, shrink_from=0.20, first_cut_from=0.50, settle_from=0.50, update_every=20
        ),
        "strength": Strength.constant(10.0),
        "pull": Proximal(),
    }


@pytest.mark.parametrize("method", ["paper", Method.paper()], ids=["word", "object"])
def test_the_word_is_the_papers_constants(method: Any):
    (weights, states), (wanted, wanted_states) = trained(method=method), trained(**in_parts())
    assert same(weights, wanted)
    assert same(states, wanted_states)


def test_without_a_method_it_is_the_default():
    one, other = trained(), Method.default()
    assert same(list(one), list(trained()))
    assert (other.schedule, other.strength, other.pull) == (Schedule(), Strength(), Proximal())
    assert other.policy is default_policy


def test_a_method_of_ones_own():
    mine = replace(Method.paper(), name="mine", pull=HalfSpace())
    (weights, _), (wanted, _) = trained(method=mine), trained(**in_parts() | {"pull": HalfSpace()})
    assert same(weights, wanted)
    assert not same(weights, trained(method="paper")[0])


def test_every_run_gets_a_policy_of_its_own():
    method = Method.paper()
    assert method.policy() is not method.policy()
    assert same(trained(method=method)[0], trained(method=method)[0])


def attach(**settings: Any) -> trainonce.Pruner:
    model = convolutional(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return trainonce.attach(
        model, optimizer, example=batch(0, 2)[0], total_steps=2000, keep_flops=0.5, **settings
    )


@pytest.mark.parametrize("part", list(in_parts()))
@pytest.mark.parametrize("method", ["paper", Method.default()], ids=["paper", "default"])
def test_a_method_and_a_part_of_one_are_refused(method: Any, part: str):
    with pytest.raises(
        PrunerError, match=rf"^method \w+ and {part} are both given[^\n]*Leave one out[^\n]*$"
    ):
        attach(method=method, **{part: in_parts()[part]})


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("papr", r"there is no method 'papr'\. Did you mean paper\?"),
        ("", r"there is no method ''\. Choose one of default, paper\."),
        (
            Method,
            r"method must be one of default, paper, or a trainonce\.Method such as Method\.paper\(\), got ",
        ),
        (3, r"method must be one of "),
    ],
)
def test_what_is_no_method_is_refused(method: Any, words: str):
    with pytest.raises(PrunerError, match=rf"^{words}[^\n]*$"):
        attach(method=method)
