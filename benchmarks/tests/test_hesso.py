"""HESSO in our harness, with a stand-in for its package.

It is asked for the right number of groups, and again until the FLOPs fit.
"""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.hesso import HessoContender, WrongShare
from benchmarks.recipe import Recipe
from benchmarks.resnet import build_resnet
from benchmarks.training_time.hesso_loop import HessoLoop

NUM_GROUPS, STEPS = 448, 40


class StandIn:
    """What only_train_once's OTO is called for; its optimizer rounds shares down, as the package does."""

    def __init__(self, *, model: nn.Module, dummy_input: Tensor) -> None:
        self._model = model

    def hesso(self, *, lr: float, target_group_sparsity: float = 0.5, **_: Any) -> torch.optim.Optimizer:
        optimizer: Any = torch.optim.SGD(self._model.parameters(), lr=lr)
        optimizer.total_num_groups = NUM_GROUPS
        optimizer.num_cut = int(NUM_GROUPS * target_group_sparsity)
        return optimizer


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "only_train_once", SimpleNamespace(OTO=StandIn))
    monkeypatch.setattr(HessoContender, "tries", [])
    # The harness puts its own in place of this; it is put back after the test.
    monkeypatch.setattr(torch.Tensor, "cuda", torch.Tensor.cuda)


def search(monkeypatch: pytest.MonkeyPatch, flops_of: Any, *, keep: float) -> HessoContender:
    """Try until a try goes on, as the child does."""
    monkeypatch.setattr(
        HessoContender, "_share_now", lambda contender: flops_of(NUM_GROUPS - contender.optimizer.num_cut)
    )
    configuration = Configuration(contender="hesso", keep_flops=keep, seed=0, depth=8, epochs=1)
    batch = torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)
    for _ in range(20):
        contender = HessoContender(configuration, example=batch[0], total_steps=STEPS)
        try:
            contender.step(STEPS // 4 + 2, batch, lambda: batch)
        except WrongShare:
            continue
        return contender
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("keep", [0.3, 0.5])
def test_the_try_that_goes_on_has_the_flops(keep: float, monkeypatch: pytest.MonkeyPatch):
    found = search(monkeypatch, lambda num_kept: (num_kept / NUM_GROUPS) ** 0.9, keep=keep)
    facts = found.facts()
    assert abs((facts["num_groups_kept"] / facts["num_groups"]) ** 0.9 / keep - 1) <= 0.01
    assert facts["tries"] > 1


def test_where_no_number_fits_it_gets_more_flops_and_not_fewer(monkeypatch: pytest.MonkeyPatch):
    found = search(
        monkeypatch, lambda num_kept: (0.2941 if num_kept < 97 else 0.3125) * (num_kept / 97) ** 0.8, keep=0.3
    )
    assert found.facts()["num_groups_kept"] == 97


def test_the_loop_that_is_timed_asks_for_about_the_flops():
    loop = HessoLoop(
        build_resnet(8, seed=0), Recipe(), STEPS, example=torch.zeros(1, 3, 8, 8), keep_flops=0.45
    )
    assert abs((1 - loop.optimizer.num_cut / NUM_GROUPS) ** 0.73 - 0.45) < 0.005
