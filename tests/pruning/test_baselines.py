"""Criteria of other papers do what their papers say: SFP and HRank."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.digits import attached, convolutional, perceptron, train
from support.searches import IMAGES, LABELS, by_group, net, ranking, search_in, started
from trainonce import PrunerError, Schedule, SettingError, ShortRunWarning
from trainonce.pruning.policies import DiscreteGates, FeatureRank, FilterNorm, SoftFilter
from trainonce.pruning.policies.policy import Evaluate

FILTERS = {"0.0": "0.0.weight", "1.0": "1.0.weight", "4": "4.weight"}
"""The groups of `net`, and their filters."""


def norms_of(filters: Tensor) -> Tensor:
    return filters.detach().flatten(1).norm(dim=1)


def test_soft_filter_zeroes_the_smallest_filters_and_nothing_else():
    model, now = net(), [0.0]
    search = search_in(model, progress=lambda: now[0])
    policy = started(SoftFilter(num_rounds=4), search)
    with torch.no_grad():
        # By norm and filter together, others would be the smallest.
        model[0][1].weight.copy_(torch.linspace(1, 20, 12))
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    policy.observe()
    for group, name in FILTERS.items():
        old, new = norms_of(before[name]), norms_of(dict(model.named_parameters())[name])
        num_zeroed = int((new == 0).sum())
        # Of the linear layer nothing goes: its units are so cheap that they fill the budget up.
        assert group == "4" or 0.2 * len(old) <= num_zeroed <= 0.5 * len(old), "a like share of every layer"
        assert sorted(ranking(old)[:num_zeroed]) == (new == 0).nonzero().flatten().tolist(), group
        assert torch.equal(new[new != 0], old[new != 0])
    for name, tensor in model.named_parameters():
        assert name in FILTERS.values() or torch.equal(tensor, before[name]), name
    left = (
        torch.cat([norms_of(dict(model.named_parameters())[name]) for name in FILTERS.values()]) > 0
    ).double()
    assert 0.45 < search.budget.share_of(left) <= 0.5


def test_soft_filter_zeroes_once_in_each_round():
    model, now = net(), [0.0]
    policy = started(SoftFilter(num_rounds=4), search_in(model, progress=lambda: now[0]))
    zeroed_at = []
    for step in range(40):
        now[0] = step / 40
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(step))
                parameter.add_(0.1 * noise)
        policy.observe()
        if bool((norms_of(model[0][0].weight) == 0).any()):
            zeroed_at.append(step)
    assert zeroed_at == [0, 10, 20, 30]


def test_soft_filter_lets_filters_come_back():
    """Filters at zero grow in the next steps, and some that were zeroed stay in the end."""
    model = convolutional(24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = Schedule(search_from=10, shrink_from=20, first_cut_from=90, settle_from=90)
    pruner = attached(model, optimizer, 130, policy=SoftFilter(num_rounds=8), schedule=schedule, shrink=False)
    was_zero, zeros = torch.zeros(48, dtype=torch.bool), []

    def note(step: int, _cut: bool) -> None:
        if step < 90:
            is_zero = norms_of(model[1][0].weight) == 0
            zeros.append(int(is_zero.sum()))
            was_zero.logical_or_(is_zero)

    train(model, optimizer, pruner, steps=range(130), size=8, after=note)
    steps = [step for step, count in enumerate(zeros) if count]
    assert steps == [10, 20, 30, 40, 50, 60, 70, 80], "all of them grew back in the very next step"
    kept = pruner.masks["1.0"].bool()
    assert int((was_zero & kept).sum()) > 0
    assert int(kept.sum()) < 48


def test_soft_filter_leaves_frozen_filters_alone():
    model = net()
    search = search_in(model)
    model[0][0].weight.requires_grad_(False)
    started(SoftFilter(num_rounds=1), search).observe()
    assert bool((norms_of(model[0][0].weight) > 0).all())
    assert bool((norms_of(model[1][0].weight) == 0).any())


@pytest.mark.parametrize("bad", [0, -1, 2.5, True])
def test_soft_filter_without_rounds_is_refused(bad: Any):
    with pytest.raises(SettingError, match=r"^num_rounds must be an integer of at least 1, got [^\n]*$"):
        SoftFilter(num_rounds=bad)


RANKS = [5, 1, 8, 3, 7, 2, 6, 4]


def image_of_rank(rank: int, generator: torch.Generator) -> Tensor:
    """A map of that rank without negative numbers: orthogonal rows of a permutation, mixed."""
    return torch.eye(8)[torch.randperm(8, generator=generator)][:, :rank] @ torch.rand(
        rank, 8, generator=generator
    )


def images_of_known_ranks(count: int = 6, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack(
        [torch.stack([image_of_rank(rank, generator) for rank in RANKS]) for _ in range(count)]
    )


def passing_on(norm: nn.Module | None = None) -> nn.Sequential:
    """Each filter passes one channel on, the more of it the lower its rank."""
    model = nn.Sequential(
        nn.Conv2d(8, 8, 1, bias=False), norm or nn.Identity(), nn.ReLU(), nn.Conv2d(8, 4, 8), nn.Flatten()
    )
    with torch.no_grad():
        model[0].weight.copy_(torch.diag(10 / torch.tensor(RANKS).float())[:, :, None, None])
    return model


def evaluated(model: nn.Module, images: Tensor, labels: Tensor) -> Evaluate:
    """The loss on these images; masks are left out of it."""
    return lambda masks: (F.cross_entropy(model(images), labels).detach(), torch.zeros(len(masks)))


def test_feature_rank_is_the_mean_rank_of_the_maps():
    model, images = passing_on(), images_of_known_ranks()
    search = search_in(model, example=images)
    policy = FeatureRank()
    policy.start(search)
    assert policy.update(evaluated(model, images, torch.zeros(6, dtype=torch.long))) is not None
    assert policy.state_dict()["average"].tolist() == [float(rank) for rank in RANKS]
    assert ranking(policy.scores()) == ranking(torch.tensor(RANKS))
    by_norm = started(FilterNorm(2), search).scores()
    assert ranking(by_norm) == ranking(-torch.tensor(RANKS)), "norms say the opposite"


def test_feature_rank_averages_the_last_batches():
    """Of images whose maps are turned off one by one, the newest two batches count half each."""
    model = passing_on()
    search = search_in(model, example=images_of_known_ranks())
    policy = FeatureRank(num_batches=2)
    policy.start(search)
    averages = []
    for share in (1, 0, 0, 1):
        images = images_of_known_ranks() * share
        policy.update(evaluated(model, images, torch.zeros(6, dtype=torch.long)))
        averages.append(float(policy.state_dict()["average"][2]) / RANKS[2])
    assert averages == [1, 0.5, 0.25, 0.625]


def test_feature_rank_measures_behind_the_norm_and_as_relu_leaves_it():
    model, images = passing_on(nn.BatchNorm2d(8)), images_of_known_ranks()
    images[3:] = 0
    with torch.no_grad():
        model[1].bias[2] = -100.0
    policy = FeatureRank(num_images=3)
    policy.start(search_in(model, example=images))
    policy.update(evaluated(model, images, torch.zeros(6, dtype=torch.long)))
    normed = model[1](model[0](images))[:3].relu()
    wanted = torch.linalg.matrix_rank(normed).double().mean(dim=0)
    assert torch.equal(policy.state_dict()["average"], wanted)
    assert ranking(policy.scores())[0] == 2, "a channel that ReLU shuts has rank 0"


def test_feature_rank_leaves_linear_layers_to_norms():
    model = net()
    search = search_in(model)
    policy = FeatureRank()
    policy.start(search)
    policy.update(evaluated(model, IMAGES, LABELS))
    scores, norms = (
        by_group(search, scores) for scores in (policy.scores(), started(FilterNorm(2), search).scores())
    )
    assert torch.allclose(scores["4"], norms["4"])
    assert not torch.allclose(scores["0.0"], norms["0.0"])


def test_feature_rank_does_not_take_inputs_of_a_transposed_convolution_for_filters():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Sigmoid(),
        nn.ConvTranspose2d(8, 8, 2),
        nn.ReLU(),
        nn.Conv2d(8, 4, 7),
    )
    search = search_in(model)
    policy = FeatureRank()
    policy.start(search)
    policy.update(lambda masks: (model(IMAGES).sum().detach(), torch.zeros(len(masks))))
    measured = by_group(search, policy.state_dict()["average"])
    wanted = torch.linalg.matrix_rank(model[0](IMAGES).relu()).double().mean(dim=0)
    assert torch.equal(next(iter(measured.values())), wanted)
    assert not any(hook for module in model.modules() for hook in module._forward_hooks)


def test_feature_rank_needs_feature_maps():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    pruner = attached(model, optimizer, 40, policy=FeatureRank())
    with pytest.raises(
        PrunerError, match=r"^FeatureRank saw no feature maps [^\n]*Choose another policy[^\n]*$"
    ):
        train(model, optimizer, pruner, steps=range(40), size=8)


@pytest.mark.parametrize("name", ["num_batches", "num_images"])
def test_feature_rank_of_nothing_is_refused(name: str):
    with pytest.raises(SettingError, match=rf"^{name} must be an integer of at least 1, got 0[^\n]*$"):
        FeatureRank(**{name: 0})


def test_a_short_run_by_rank_needs_no_warning():
    """A few batches are enough for it; the controller, in the same run, is warned."""
    model = convolutional(6)
    for policy, is_warned in ((FeatureRank(), False), (DiscreteGates(), True)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        # Without a context, a warning would fail the test.
        with pytest.warns(ShortRunWarning) if is_warned else nullcontext():
            attached(model, optimizer, 40, policy=policy, schedule=Schedule())
