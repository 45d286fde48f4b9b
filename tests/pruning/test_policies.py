"""Each way of choosing keeps the law it is named for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support.searches import IMAGES, LABELS, by_group, net, ranking, search_in, started, tower
from trainonce.errors import SettingError
from trainonce.pruning.policies import (
    FilterNorm,
    GeometricMedian,
    Gradual,
    NormScale,
    PenalizeAll,
    Policy,
    RandomChoice,
    StaticSalience,
    Taylor,
    Uniform,
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
    with pytest.raises(SettingError, match=r"^num_periods must be an integer of at least 1, got 0[^\n]*$"):
        Gradual(num_periods=0)
