"""The gates of DMC: discrete, straight-through, and closed where it hurts least."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import trainonce
from support.digits import batch, convolutional, train
from support.searches import net, search_in
from trainonce import Schedule
from trainonce.pruning.policies import DiscreteGates, FilterNorm


def theta_of(policy: DiscreteGates) -> Tensor:
    return 1 + policy.state_dict()["network"]["logits"]


def test_discrete_gates_are_all_that_is_learned():
    search = search_in(net())
    policy = DiscreteGates()
    policy.start(search)
    state = policy.state_dict()
    assert [tuple(tensor.shape) for tensor in state["network"].values()] == [(len(search.units),)]
    assert torch.equal(policy.draw().detach(), torch.ones(len(search.units))), "all open at first"


def test_a_discrete_gate_is_open_as_often_as_its_probability_says():
    search = search_in(net())
    policy = DiscreteGates()
    policy.start(search)
    theta = torch.linspace(0, 1, len(search.units))
    state = policy.state_dict()
    state["network"]["logits"] = theta - 1
    policy.load_state_dict(state)
    draws = torch.stack([policy.draw().detach() for _ in range(2000)])
    assert set(draws.unique().tolist()) == {0.0, 1.0}
    assert float((draws.mean(dim=0) - theta).abs().max()) < 4 * 0.5 / 2000**0.5


def test_the_gradient_passes_a_discrete_gate_as_it_is():
    policy = DiscreteGates()
    policy.start(search_in(net()))
    slopes = torch.randn(40, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((policy.draw() * slopes).sum(), list(policy._network.parameters()))
    assert torch.equal(gradient, slopes)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_discrete_gates_close_where_it_hurts_least(share: float):
    """On a loss that is linear in the masks: what is left costs the budget, and is what helps most."""
    search = search_in(net(), share=share)
    policy = DiscreteGates()
    policy.start(search)
    helps = torch.rand(len(search.units), generator=torch.Generator().manual_seed(0))
    theta = theta_of(policy).clone()
    for _ in range(search.num_updates):
        policy.update(lambda masks: (-(masks * helps).sum(), -helps))
        theta = theta_of(policy)
        assert float(theta.min()) >= 0
        assert float(theta.max()) <= 1
    closed = theta < 0.5
    assert 0 < int(closed.sum()) < len(closed)
    assert float(helps[closed].mean()) < float(helps[~closed].mean())


def silent_units_dropped(policy: Any) -> tuple[Tensor, Tensor]:
    """Which of the first layer's units a run drops when nothing reads half of them; weights are still."""
    model = convolutional(12)
    silent = torch.arange(12) % 2 == 0
    with torch.no_grad():
        model[1][0].weight[:, silent] = 0
        # To a criterion by norm these look best.
        model[0][0].weight[silent] *= 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=batch(0, 2)[0],
        total_steps=120,
        keep_flops=0.76,
        policy=policy,
        schedule=Schedule(search_from=0, shrink_from=0, first_cut_from=100, settle_from=100, update_every=1),
        protect=["1.*", "2.*"],
        round_to=1,
    )
    train(model, optimizer, pruner, steps=range(120), size=16)
    return silent, pruner.masks["0.0"] == 0


def test_discrete_gates_drop_what_the_loss_does_not_feel():
    silent, dropped = silent_units_dropped(DiscreteGates())
    assert bool(silent[dropped].all())
    assert int(dropped.sum()) >= 5
    _, by_norm = silent_units_dropped(FilterNorm(2))
    assert not bool(silent[by_norm].any()), "norms say the opposite"


def test_gates_of_frozen_units_stay_open():
    search = search_in(net())
    required = search.units.written_by(["4.weight"])
    policy = DiscreteGates()
    policy.start(search)
    policy.follow(replace(search, budget=search.budget.requiring(required)))
    for _ in range(60):
        policy.update(lambda masks: (masks.sum(), torch.ones(len(masks))))
    theta = theta_of(policy)
    assert bool((theta[required] == 1).all())
    assert bool((theta[~required] < 0.5).all())
