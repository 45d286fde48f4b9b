"""Each way of choosing keeps the law it is named for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu
from support.digits import same
from support.searches import IMAGES, LABELS, by_group, net, ranking, search_in, started
from trainonce.pruning.budget import Budget
from trainonce.pruning.policies import (
    AnchoredController,
    Capacity,
    Controller,
    FilterNorm,
    FreeLogits,
    GeometricMedian,
    Gradual,
    NormScale,
    PenalizeAll,
    Policy,
    RandomChoice,
    RecurrentLogits,
    Search,
    StaticSalience,
    Taylor,
    Uniform,
)

CONTROLLERS: dict[str, Callable[[], Controller]] = {
    "recurrent": lambda: Controller(learning_rate=0.01),
    "free": lambda: Controller(FreeLogits, bias=0.0, learning_rate=0.05),
    "anchored": lambda: AnchoredController(learning_rate=0.01, ramp=0),
    "anchored_free": lambda: AnchoredController(FreeLogits, learning_rate=0.05, ramp=0),
}
every_controller = pytest.mark.parametrize("make", list(CONTROLLERS.values()), ids=list(CONTROLLERS))


def tower() -> nn.Sequential:
    """Layers of like cost and many channels: shares of them are fine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            ConvNormRelu(3, 32),
            ConvNormRelu(32, 32),
            ConvNormRelu(32, 48),
            ConvNormRelu(48, 32),
            nn.Conv2d(32, 4, 6),
        )


@pytest.mark.parametrize("order", [1, 2])
def test_filter_norm_is_the_norm_relative_to_its_layer(order: int):
    model = net()
    search = search_in(model)
    scores = by_group(search, started(FilterNorm(order), search).scores())
    for name, filters in {"0.0": model[0][0].weight, "4": model[4].weight}.items():
        norms = filters.detach().flatten(1).norm(p=order, dim=1)
        assert torch.allclose(scores[name], (norms / norms.mean()).double(), rtol=1e-5)


def test_an_order_that_is_no_norm_is_refused():
    with pytest.raises(ValueError, match=r"^order must be 1 or 2, got 3[^\n]*$"):
        FilterNorm(3)


def test_norm_scale_ranks_by_the_absolute_scale():
    model = net()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for block in (model[0], model[1]):
            block[1].weight.copy_(torch.randn(block[1].weight.shape, generator=generator))
            block[1].bias.copy_(torch.randn(block[1].bias.shape, generator=generator))
            block[0].weight.mul_(torch.rand(len(block[0].weight), 1, 1, 1, generator=generator))
    search = search_in(model)
    scores = by_group(search, started(NormScale(), search).scores())
    assert ranking(scores["0.0"]) == ranking(model[0][1].weight.detach().abs())
    assert ranking(scores["1.0"]) == ranking(model[1][1].weight.detach().abs())
    linear = torch.cat([model[4].weight, model[4].bias[:, None]], dim=1).detach().norm(dim=1)
    assert ranking(scores["4"]) == ranking(linear)


def test_geometric_median_drops_the_filter_in_the_middle():
    """Filters lie on a sphere around one of them that is neither short nor near zero.

    It is their geometric median.
    """
    model = net()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        directions = torch.randn(12, 27, generator=generator)
        sphere = directions / directions.norm(dim=1, keepdim=True)
        sphere[6:] = -sphere[:6]
        filters = 5 * torch.ones(27) + sphere * (1 + torch.rand(12, 1, generator=generator))
        filters[7] = 5.0
        filters[0] = 5.0 + 0.001 * sphere[0]
        model[0][0].weight.copy_(filters.reshape(12, 3, 3, 3))
        model[0][1].weight.fill_(1.0)
    search = search_in(model)
    scores = by_group(search, started(GeometricMedian(), search).scores())["0.0"]
    median = geometric_median(filters.double())
    distances = (filters.double() - median).norm(dim=1)
    assert ranking(scores)[:2] == ranking(distances)[:2]
    norms = by_group(search, started(FilterNorm(2), search).scores())["0.0"]
    assert ranking(norms)[:2] != ranking(distances)[:2], "a criterion by norm chooses others"


def geometric_median(points_ND: Tensor) -> Tensor:
    """Weiszfeld's iteration."""
    median = points_ND.mean(dim=0)
    for _ in range(2000):
        weights = 1 / (points_ND - median).norm(dim=1).clamp_min(1e-12)
        median = (points_ND * weights[:, None]).sum(dim=0) / weights.sum()
    return median


def test_geometric_median_scores_are_sums_of_distances():
    model = net()
    search = search_in(model)
    scores = by_group(search, started(GeometricMedian(), search).scores())
    for name, weight in (("0.0", model[0][0].weight), ("4", model[4].weight)):
        rows = weight.detach().double().flatten(1)
        sums = torch.stack([(rows - row).norm(dim=1).sum() for row in rows])
        assert torch.allclose(scores[name], sums / sums.mean(), rtol=1e-6)


def test_taylor_drops_the_unit_that_the_loss_does_not_feel():
    model = net()
    with torch.no_grad():
        model[6].weight[:, 5] = 0
        model[1][0].weight[:, 3] = 0
        model[0][1].weight[3] = 9.0
    search = search_in(model)
    policy = started(Taylor(), search)
    for _ in range(3):
        model.zero_grad()
        F.cross_entropy(model(IMAGES), LABELS).backward()
        policy.observe()
    scores = by_group(search, policy.scores())
    assert ranking(scores["0.0"])[0] == 3
    assert float(scores["0.0"][3]) == 0
    assert float(scores["4"][5]) == 0
    assert int((scores["0.0"] > 0).sum()) == 11


@pytest.mark.parametrize("per_layer", [False, True])
def test_taylor_is_the_squared_sum_of_gradient_times_weight(per_layer: bool):
    model = net()
    search = search_in(model)
    policy = started(Taylor(per_layer=per_layer), search)
    average = torch.zeros(20, dtype=torch.double)
    for seed in range(3):
        model.zero_grad()
        F.cross_entropy(model(IMAGES * (seed + 1)), LABELS).backward()
        policy.observe()
        product = (model[4].weight * model[4].weight.grad).sum(dim=1) + model[4].bias * model[4].bias.grad
        average = 0.99 * average + 0.01 * product.detach().double().square()
    assert torch.allclose(
        by_group(search, policy.scores())["4"], average / average.mean() if per_layer else average, rtol=1e-4
    )


def narrowing() -> nn.Sequential:
    """The same width at three resolutions: the same weights at 16, 4 and 1 times the cost."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [layer for _ in range(3) for layer in (ConvNormRelu(24, 24), nn.MaxPool2d(2))]
        return nn.Sequential(
            nn.Conv2d(3, 24, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 4)
        )


def search_in_narrowing(share: float = 0.5) -> Search:
    return search_in(narrowing(), example=torch.randn(2, 3, 16, 16), share=share)


def test_capacity_keeps_more_of_the_layers_whose_weights_cost_less():
    search = search_in_narrowing()
    widths = {}
    for exponent in (0.0, 0.2):
        masks = search.budget.choose(started(Capacity(exponent=exponent), search).scores())
        widths[exponent] = [int(mask.sum()) for mask in by_group(search, masks).values()]
    assert max(widths[0.0]) - min(widths[0.0]) <= 3, (
        "the same share of every layer, but for cheap units that fill the budget up"
    )
    assert widths[0.2] == sorted(widths[0.2])
    assert widths[0.2][-1] - widths[0.2][0] >= 6


class Residual(nn.Module):
    """A trunk that three layers read, and two branches that one reads each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNormRelu(3, 24)
        self.branches = nn.ModuleList(
            nn.Sequential(ConvNormRelu(24, 24), nn.Conv2d(24, 24, 3, padding=1)) for _ in range(2)
        )
        self.head = nn.Linear(24, 4)

    def forward(self, images: Tensor) -> Tensor:
        trunk = self.stem(images)
        for branch in self.branches:
            trunk = trunk + branch(trunk)
        return self.head(trunk.mean((2, 3)))


@pytest.mark.parametrize("share", [0.6, 0.4, 0.15])
def test_capacity_narrows_what_many_layers_read_last(share: float):
    search = search_in(Residual(), example=torch.randn(2, 3, 8, 8), share=share)
    kept = {}
    for trunk in (1.0, 3.0):
        masks = search.budget.choose(started(Capacity(trunk=trunk, exponent=0.0), search).scores())
        kept[trunk] = [float(mask.mean()) for mask in by_group(search, masks).values()]
    assert max(kept[1.0]) - min(kept[1.0]) <= 0.1
    stem, *inner = kept[3.0]
    assert max(inner) - min(inner) <= 0.1
    assert abs(stem - min(1.0, 3 * sum(inner) / 2)) <= 0.15


def test_capacity_ranks_within_a_layer_as_it_is_told():
    search = search_in_narrowing()
    inner = started(RandomChoice(), search)
    scores = by_group(search, started(Capacity(RandomChoice()), search).scores())
    for name, expected in by_group(search, inner.scores()).items():
        assert ranking(scores[name]) == ranking(expected)


def test_capacity_without_cheaper_weights_is_the_same_share_of_every_layer():
    of_flops = search_in(tower(), share=0.4)
    search = replace(of_flops, budget=Budget.of_parameters(of_flops.units, 0.4, 1))
    masks = search.budget.choose(started(Capacity(), search).scores())
    shares = [float(mask.mean()) for mask in by_group(search, masks).values()]
    assert max(shares) - min(shares) <= 0.1


def test_random_choice_is_the_seeds():
    draws = []
    state = torch.get_rng_state()
    for seed in (0, 0, 1):
        draws.append(started(RandomChoice(), search_in(net(), seed=seed)).scores())
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("share", [0.2, 0.45, 0.8])
def test_uniform_keeps_the_same_share_of_every_group(share: float):
    search = search_in(tower(), share=share)
    masks = by_group(search, search.budget.choose(started(Uniform(), search).scores()))
    shares = [float(mask.mean()) for mask in masks.values()]
    assert max(shares) - min(shares) <= 2 / 32


def test_uniform_keeps_the_largest_of_each_group():
    model = tower()
    search = search_in(model)
    masks = by_group(search, search.budget.choose(started(Uniform(), search).scores()))["2.0"]
    block = (model[2][0].weight.flatten(1), model[2][1].weight[:, None], model[2][1].bias[:, None])
    norms = torch.cat(block, dim=1).detach().norm(dim=1)
    assert float(norms[masks == 1].min()) > float(norms[masks == 0].max())


def test_only_train_once_penalises_all():
    search = search_in(net())
    policy = started(PenalizeAll(), search)
    assert bool(policy.penalized().all())
    assert len(policy.penalized()) == 40


@pytest.mark.parametrize("make", [FilterNorm, NormScale, GeometricMedian, Taylor, RandomChoice, Uniform])
def test_a_criterion_penalises_nothing_before_the_decision(make: Callable[[], Policy]):
    assert not bool(started(make(), search_in(net())).penalized().any())


def test_static_salience_never_changes_its_choice():
    model = net()
    search = search_in(model)
    policy = started(StaticSalience(), search)
    assert not bool(policy.penalized().any()), "nothing is chosen before the search begins"
    policy.observe()
    chosen, scores = policy.penalized().clone(), policy.scores().clone()
    assert torch.equal(chosen, search.budget.choose(started(FilterNorm(2), search).scores()) == 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(9)))
    policy.observe()
    assert torch.equal(policy.penalized(), chosen)
    assert torch.equal(policy.scores(), scores)
    assert torch.equal(search.budget.choose(policy.scores()) == 0, chosen)


@pytest.mark.parametrize("num_periods", [1, 4, 10])
def test_gradual_only_adds_and_ends_at_the_budget(num_periods: int):
    model = tower()
    now = [0.0]
    search = search_in(model, share=0.4, progress=lambda: now[0])
    policy = started(Gradual(num_periods=num_periods), search)
    assert not bool(policy.penalized().any())
    dropped, sizes, shares = policy.penalized(), [], []
    for step in range(50):
        now[0] = step / 50
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(
                    0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(step))
                )
        policy.observe()
        assert bool(policy.penalized()[dropped].all()), "what was chosen once stays chosen"
        dropped = policy.penalized().clone()
        sizes.append(int(dropped.sum()))
        shares.append(search.budget.share_of((~dropped).double()))
    assert len(set(sizes)) == num_periods
    assert shares == sorted(shares, reverse=True)
    assert 0.39 <= shares[-1] <= 0.4
    assert torch.equal(search.budget.choose(policy.scores()) == 0, dropped)


def test_gradual_without_periods_is_refused():
    with pytest.raises(ValueError, match=r"^num_periods must be at least 1, got 0[^\n]*$"):
        Gradual(num_periods=0)


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
