"""Laws of the controllers: one draw feeds gates and cost, and learning meets the budget."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from support.digits import same
from support.searches import by_group, net, search_in, started, tower
from trainonce.pruning.budget import Budget
from trainonce.pruning.policies import (
    AnchoredController,
    Capacity,
    Controller,
    FilterNorm,
    FreeLogits,
    RandomChoice,
    RecurrentLogits,
    Search,
)

CONTROLLERS: dict[str, Callable[[], Controller]] = {
    "recurrent": lambda: Controller(learning_rate=0.01),
    "free": lambda: Controller(FreeLogits, bias=0.0, learning_rate=0.05),
    "anchored": lambda: AnchoredController(learning_rate=0.01, ramp=0),
    "anchored_free": lambda: AnchoredController(FreeLogits, learning_rate=0.05, ramp=0),
}


every_controller = pytest.mark.parametrize("make", list(CONTROLLERS.values()), ids=list(CONTROLLERS))


def linear_loss(search: Search, seed: int = 0) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """A loss that is linear in the masks: half of the units help, half of them harm."""
    slopes = torch.randn(len(search.units), generator=torch.Generator().manual_seed(seed))
    return slopes, lambda masks: ((masks * slopes).sum(), slopes.clone())


def network_state(policy: Controller) -> dict[str, Any]:
    state = copy.deepcopy(policy.state_dict())
    return {"network": state["network"], "moments": state["moments"]}


@every_controller
def test_one_draw_feeds_the_gates_and_the_cost(make: Callable[[], Controller]):
    counted: list[Tensor] = []

    class Watched(Budget):
        def cost(self, masks: Tensor) -> Tensor:
            if masks.requires_grad:
                counted.append(masks.detach().clone())
            return super().cost(masks)

    search = search_in(net(), kind=Watched)
    policy = make()
    policy.start(search)
    gated: list[Tensor] = []

    def evaluate(masks: Tensor) -> tuple[Tensor, Tensor]:
        assert not masks.requires_grad
        gated.append(masks.clone())
        return torch.tensor(1.0), torch.randn(len(masks), generator=torch.Generator().manual_seed(len(gated)))

    for _ in range(10):
        policy.update(evaluate)
    assert len(gated) == len(counted) == 10
    assert all(torch.equal(left, right) for left, right in zip(gated, counted, strict=True))
    assert all(set(masks.unique().tolist()) <= {0.0, 1.0} for masks in gated)
    assert any(not torch.equal(gated[0], masks) for masks in gated[1:]), "each update draws anew"


@pytest.mark.parametrize("network", [RecurrentLogits, FreeLogits])
def test_the_draw_is_rounded_and_its_gradient_is_that_of_the_soft_masks(network: Any):
    search = search_in(net())
    policy = Controller(network)
    policy.start(search)
    noise = torch.Generator()
    noise.set_state(policy.state_dict()["noise"])
    masks = policy.draw()
    logits = policy.scores()
    uniform = torch.rand(logits.shape, generator=noise)
    soft = torch.sigmoid((logits - (-uniform.log()).log()) / 0.4)
    assert torch.equal(masks.detach(), soft.round())
    weights = torch.randn(len(masks), generator=torch.Generator().manual_seed(1))
    if network is FreeLogits:
        (gradient,) = torch.autograd.grad((masks * weights).sum(), policy._network.logits)
        assert torch.allclose(gradient, weights * soft * (1 - soft) / 0.4, rtol=1e-4, atol=1e-6)
    else:
        assert masks.requires_grad


@every_controller
def test_the_controller_is_the_seeds(make: Callable[[], Controller]):
    finals = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(finals))
        state = torch.get_rng_state()
        search = search_in(net(), seed=seed)
        policy = make()
        policy.start(search)
        _, evaluate = linear_loss(search)
        for _ in range(10):
            policy.update(evaluate)
        assert torch.equal(torch.get_rng_state(), state)
        finals.append(policy.scores())
    assert torch.equal(finals[0], finals[1])
    assert not torch.equal(finals[0], finals[2])


@every_controller
def test_the_controller_learns_what_helps(make: Callable[[], Controller]):
    search = search_in(net())
    policy = make()
    policy.start(search)
    slopes, evaluate = linear_loss(search)
    before = search.budget.choose(policy.scores())
    for _ in range(300):
        assert policy.update(evaluate) is not None
    after = search.budget.choose(policy.scores())
    assert float((after * slopes).sum()) < float((before * slopes).sum())
    scores = policy.scores()
    assert float(scores[slopes < -0.5].mean()) > float(scores[slopes > 0.5].mean())


@pytest.mark.parametrize("network", [RecurrentLogits, FreeLogits])
def test_the_penalty_brings_the_cost_to_the_budget(network: Any):
    """With a loss that says nothing, only the penalty acts: draws come down to the budget.

    It is one-sided: nothing pulls them back.
    """
    search = search_in(net(), share=0.4)
    policy = Controller(network, learning_rate=0.02)
    policy.start(search)
    for _ in range(300):
        policy.update(lambda masks: (torch.tensor(0.0), torch.zeros(len(masks))))
    draws = [search.budget.share_of(policy.draw().detach()) for _ in range(50)]
    assert sum(draws) / len(draws) < 0.42


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_every_draw_of_the_anchored_controller_meets_the_budget(share: float):
    search = search_in(net(), share=share)
    policy = AnchoredController(ramp=0)
    policy.start(search)
    shares: list[float] = []

    def evaluate(masks: Tensor) -> tuple[Tensor, Tensor]:
        shares.append(search.budget.share_of(masks))
        return torch.tensor(1.0), torch.ones(len(masks))

    for _ in range(20):
        policy.update(evaluate)
    assert max(shares) <= share
    assert min(shares) > share - 0.15
    assert search.budget.share_of((~policy.penalized()).double()) <= share


@pytest.mark.parametrize("between_layers", [0.0, 1.0])
def test_units_move_freely_and_whole_layers_as_far_as_they_may(between_layers: float):
    search = search_in(tower(), share=0.4)
    policy = AnchoredController(
        prior=Capacity(RandomChoice()), between_layers=between_layers, learning_rate=0.01, ramp=0
    )
    policy.start(search)
    before = policy.scores()
    # The first layer helps as a whole, and of each layer the second half does.
    helps = torch.cat(
        [torch.arange(group.num_channels) * 2 // group.num_channels for group in search.units.groups]
    ).float()
    helps += search.units.group_of == 0
    for _ in range(60):
        policy.update(lambda masks: (-(masks * helps).sum(), -helps))
    moved = list(by_group(search, policy.scores() - before).values())
    leads = [
        float(second.mean() - first.mean()) for first, second in (of_layer.chunk(2) for of_layer in moved)
    ]
    assert sum(leads) / len(leads) > 0.5, leads
    ahead = float(moved[0].mean()) - sum(float(of_layer.mean()) for of_layer in moved[1:]) / len(moved[1:])
    assert ahead > 0.5 if between_layers else abs(ahead) < 1e-4


@every_controller
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["loss", "gradient"])
def test_a_loss_that_is_not_finite_changes_nothing(make: Callable[[], Controller], bad: float, place: str):
    search = search_in(net())
    policy = make()
    policy.start(search)
    _, evaluate = linear_loss(search)
    policy.update(evaluate)
    before = network_state(policy)

    def poisoned(masks: Tensor) -> tuple[Tensor, Tensor]:
        loss, gradient = evaluate(masks)
        if place == "loss":
            return loss * bad, torch.full_like(gradient, bad)
        gradient[3] = bad
        return loss, gradient

    assert policy.update(poisoned) is None
    assert same(network_state(policy), before)
    assert policy.update(evaluate) is not None
    assert not same(network_state(policy), before)


@every_controller
def test_a_controller_goes_on_from_its_state(make: Callable[[], Controller]):
    search = search_in(net())
    one, other = make(), make()
    _, evaluate = linear_loss(search)
    one.start(search)
    for _ in range(5):
        one.update(evaluate)
    other.start(search)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for _ in range(5):
        one.update(evaluate)
        other.update(evaluate)
    assert same(one.state_dict(), other.state_dict())


def test_the_papers_network():
    """64 -> 2 x 128 -> 256 -> one head per block; orthogonal inputs that are not learned."""
    network = RecurrentLogits([12, 8, 20])
    assert network().shape == (40,)
    assert [head.weight.shape for head in network.heads] == [(12, 256), (8, 256), (20, 256)]
    assert torch.allclose(network.inputs @ network.inputs.T, torch.eye(3), atol=1e-5)
    assert "inputs" not in dict(network.named_parameters())
    assert network.recurrent.hidden_size == 128
    assert network.recurrent.bidirectional


def test_an_update_needs_a_policy_that_has_one():
    with pytest.raises(NotImplementedError, match=r"^FilterNorm has no update of its own[^\n]*$"):
        started(FilterNorm(), search_in(net())).update(lambda masks: (torch.tensor(0.0), masks))
