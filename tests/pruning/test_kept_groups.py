"""Groups that a run leaves alone, and what a pruner shows of itself."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from graphs.subjects import count_macs, count_parameters
from support.attaching import quiet_run
from support.choices import adamw, sgd
from support.digits import batch, convolutional, train
from trainonce.pruning import policies
from trainonce.pruning.progress import Progress
from trainonce.pruning.schedule import Phase


def test_frozen_layers_are_kept_with_the_reason():
    model = convolutional(12)
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(
        [parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.05
    )
    frozen = copy.deepcopy(model[0].state_dict())
    pruner = quiet_run(model, optimizer, keep_flops=0.6)
    assert "0.0.weight is not trained by the optimizer" in pruner.kept_because["0.0"]
    train(model, optimizer, pruner, steps=range(60), size=16)
    small = pruner.finish()
    for name in ("0.weight", "1.weight", "1.bias"):
        assert torch.equal(small[0].state_dict()[name], frozen[name])
    assert small[1][0].out_channels < 24


def test_layers_that_the_optimizer_does_not_hold_are_kept():
    model = convolutional(12)
    optimizer = torch.optim.SGD(
        [*model[1].parameters(), *model[2].parameters(), *model[4].parameters()], lr=0.05
    )
    pruner = quiet_run(model, optimizer, keep_flops=0.6)
    assert "0.0" in pruner.kept_because
    assert "0.0" not in pruner.masks


def test_layers_named_in_protect_are_kept():
    model = convolutional(12)
    pruner = quiet_run(model, sgd(model.parameters()), keep_flops=0.6, protect=["1*"])
    assert "1.0" in pruner.kept_because
    assert "1.0" not in pruner.masks


class Tied(nn.Module):
    """One table that reads and writes words, and a hidden layer between."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(17, 24)
        self.hidden, self.back = nn.Linear(24, 32), nn.Linear(32, 24)
        self.answer = nn.Linear(24, 17, bias=False)
        self.answer.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = self.words(tokens)
        return self.answer(vectors + self.back(F.relu(self.hidden(vectors))))


def test_tied_weights_stay_tied():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Tied()
    optimizer = adamw(model.parameters())
    tokens = torch.randint(17, (30, 5), generator=torch.Generator().manual_seed(0))
    pruner = trainonce.attach(
        model,
        optimizer,
        example=tokens[:2],
        keep_flops=0.5,
        total_steps=60,
        policy=policies.FilterNorm(),
        shrink=False,
    )
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).transpose(1, 2), (tokens + 1) % 17).backward()
        optimizer.step()
        pruner.step()
    before = model(tokens).detach()
    small = pruner.finish()
    assert small.answer.weight is small.words.weight
    assert small.words.weight.shape[1] < 24
    assert torch.allclose(small(tokens), before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("budget", ["keep_flops", "keep_params"])
def test_a_pruner_shows_where_the_run_is(budget: str):
    model = convolutional(12)
    optimizer = sgd(model.parameters())
    pruner = quiet_run(model, optimizer, **{"keep_flops": None, budget: 0.45})
    counted = "parameters" if budget == "keep_params" else "FLOPs"
    assert repr(pruner) == (
        f"Pruner(warm-up, step 0 of 60, keeps 100.0 % of the {counted} (target 45 %), 0 cuts so far)"
    )
    train(model, optimizer, pruner, steps=range(60), size=8)
    share = f"{100 * pruner.keep_now:.1f} % of the {counted} (target 45 %)"
    assert repr(pruner) == f"Pruner(small, step 60 of 60, keeps {share}, 1 cut so far)"
    page = pruner._repr_html_()
    for piece in ("small", "60 of 60", share, *pruner.alive):
        assert piece in page
    assert all(f"{left} of {whole}" in page for left, whole in pruner.alive.values())


def test_names_of_groups_are_escaped_in_a_notebook():
    progress = Progress(Phase.SEARCH, 1, 2, 0.5, 0.4, "FLOPs", 0, {"<b>": (1, 2)})
    assert "<b>" not in progress.as_html()
    assert "&lt;b&gt;" in progress.as_html()


@pytest.mark.parametrize("budget", ["keep_flops", "keep_params"])
def test_what_is_kept_is_a_share_of_what_the_budget_counts(budget: str):
    model = convolutional(12)
    image = batch(0, 1)[0]

    def cost() -> int:
        return count_macs(model, image) if budget == "keep_flops" else count_parameters(model)

    total, optimizer = cost(), sgd(model.parameters())
    pruner = quiet_run(model, optimizer, **{"keep_flops": None, budget: 0.45})
    train(model, optimizer, pruner, steps=range(60), size=8)
    pruner.finish()
    assert pruner.keep_now == pytest.approx(cost() / total, rel=1e-12)
    assert pruner.keep_target == 0.45
