"""What can't follow a cut is refused in one line, and nothing is cut."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from support.digits import convolutional, train
from support.followers import STEPS, WIDTH, Caching, averaging, begun, with_pruner
from trainonce import PrunerError


def refused(words: str, followers: Any) -> None:
    model, optimizer = begun()
    with pytest.raises(PrunerError, match=rf"^{words}[^\n]*$"):
        with_pruner(model, optimizer, followers=followers)


def test_what_is_no_follower_is_refused():
    refused(
        "followers must be a list of averaged copies, got AveragedModel", averaging()(convolutional(WIDTH))
    )
    refused("followers must be a list", "ema")
    refused("the follower dict holds no copy of this model", [{"ema": convolutional(WIDTH)}])
    refused("the follower NoneType holds no copy", [None])
    refused("the follower AveragedModel holds no copy", [averaging()(convolutional(WIDTH + 1))])
    refused("the follower Linear holds no copy", [nn.Linear(2, 2)])


def test_the_model_itself_is_no_follower():
    model, optimizer = begun()
    with pytest.raises(PrunerError, match="the follower Sequential holds no copy of this model"):
        with_pruner(model, optimizer, followers=[model])
    with pytest.raises(PrunerError, match="the follower DataParallel holds no copy of this model"):
        with_pruner(model, optimizer, followers=[nn.DataParallel(model)])


def test_a_follower_that_changes_is_refused_at_the_cut_and_nothing_is_cut():
    model, optimizer = begun()
    average = averaging()(model)
    pruner = with_pruner(model, optimizer, followers=[average])
    train(model, optimizer, pruner, steps=range(15), size=8)
    average.module[1][0] = nn.Conv2d(WIDTH, 3, 3)
    with pytest.raises(PrunerError, match=r"^the follower AveragedModel holds no copy of this model"):
        train(model, optimizer, pruner, steps=range(15, STEPS), size=8)
    assert not pruner.cuts
    assert model[1][0].out_channels == 2 * WIDTH


class Parts(Caching):
    """Keeps a flat view of its first weight."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.flat = {"first": [self.ema[0][0].weight.detach().flatten()]}


def test_parts_of_weights_that_would_go_stale_are_refused():
    model, optimizer = begun()
    average = Parts(model)
    pruner = with_pruner(model, optimizer, followers=[average])
    with pytest.raises(PrunerError, match=r"^the follower Parts keeps parts of weights in 'flat'"):
        train(model, optimizer, pruner, steps=range(STEPS), size=8)
    assert not pruner.cuts
    assert average.ema[1][0].out_channels == model[1][0].out_channels == 2 * WIDTH
