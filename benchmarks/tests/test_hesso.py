"""HESSO is asked for the number of groups that leaves the FLOPs; with a stand-in for its package."""

import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.harness.image_task import ImageTask
from benchmarks.harness.images import Images
from benchmarks.harness.recipe import Recipe
from benchmarks.harness.resnet import build_resnet
from benchmarks.peers.group_search import Try, first_share, next_number, not_below
from benchmarks.timing.hesso_loop import HessoLoop
from benchmarks.training.configuration import Configuration
from benchmarks.training.hesso import HessoContender, WrongShare

NUM_GROUPS, STEPS = 448, 40
LAWS = {
    "power": lambda groups: groups**0.73,
    "steep": lambda groups: 1.3 * groups**1.6 / (0.3 + groups**1.6),
    "stairs": lambda groups: math.floor(300 * groups**1.4) / 300,
}


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


def search(monkeypatch: pytest.MonkeyPatch, flops_of: Any, *, keep: float) -> dict[str, Any]:
    """Try until a try goes on, as the child does."""
    monkeypatch.setattr(
        HessoContender, "_share_now", lambda contender: flops_of(NUM_GROUPS - contender.optimizer.num_cut)
    )
    configuration = Configuration(contender="hesso", keep_flops=keep, seed=0, depth=8, epochs=1, batch_size=1)
    noise = torch.zeros(STEPS, 3, 8, 8, dtype=torch.uint8), torch.zeros(STEPS, dtype=torch.long)
    task = ImageTask(Images("noise", *noise, *noise), 8)
    batch = torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)
    for _ in range(20):
        contender = HessoContender(configuration, task)
        try:
            contender.step(STEPS // 4 + 2, batch, lambda: batch)
        except WrongShare:
            continue
        return contender.facts()
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("keep", [0.3, 0.5])
def test_the_try_that_goes_on_has_the_flops(keep: float, monkeypatch: pytest.MonkeyPatch):
    facts = search(monkeypatch, lambda num_kept: (num_kept / NUM_GROUPS) ** 0.9, keep=keep)
    assert abs((facts["num_groups_kept"] / facts["num_groups"]) ** 0.9 / keep - 1) <= 0.01
    assert facts["tries"] > 1


def test_where_no_number_fits_it_gets_more_flops_and_not_fewer(monkeypatch: pytest.MonkeyPatch):
    facts = search(
        monkeypatch, lambda num_kept: (0.2941 if num_kept < 97 else 0.3125) * (num_kept / 97) ** 0.8, keep=0.3
    )
    assert facts["num_groups_kept"] == 97


def test_the_loop_that_is_timed_asks_for_about_the_flops():
    example = torch.zeros(1, 3, 8, 8)
    loop: Any = HessoLoop(build_resnet(8, seed=0), Recipe(), STEPS, example=example, keep_flops=0.45)
    assert abs((1 - loop.optimizer.num_cut / NUM_GROUPS) ** 0.73 - 0.45) < 0.005


def searched(law: Any, wanted: float) -> tuple[list[Try], bool]:
    """The tries, and whether the last of them fits."""
    tries: list[Try] = []
    number: int | None = round(NUM_GROUPS * first_share(wanted))
    while number is not None:
        assert 0 < number < NUM_GROUPS
        assert number not in [one.num_kept for one in tries]
        tries.append(Try(number, law(number / NUM_GROUPS)))
        if abs(tries[-1].flops / wanted - 1) <= 0.01:
            return tries, True
        number = next_number(wanted, tries, NUM_GROUPS)
    return tries, False


@pytest.mark.parametrize("wanted", [0.3, 0.5])
@pytest.mark.parametrize("law", LAWS)
def test_the_number_is_found_within_eight_tries(law: str, wanted: float):
    tries, fits = searched(LAWS[law], wanted)
    assert fits, tries
    assert len(tries) <= 8, tries


@pytest.mark.parametrize("cliff", [40, 97, 180])
def test_where_neighbors_lie_on_both_sides_the_search_ends_with_no_fewer_flops(cliff: int):
    # As HESSO did on ResNet-20: one group more or less was between 0.294 and 0.313 of the FLOPs.
    def law(groups: float) -> float:
        share = groups * NUM_GROUPS / cliff
        return (0.2941 if share < 1 else 0.3125) * share**0.7

    tries, fits = searched(law, 0.3)
    assert not fits, tries
    assert len(tries) <= 12, tries
    best = not_below(0.3, tries)
    assert (best.num_kept, best.flops) == (cliff, pytest.approx(0.3125))


def test_a_law_that_falls_in_between_is_searched_all_the_same():
    # Of 448 groups, 113 to 116 would fit but fall into a pit; 112 leave too little, 117 too much.
    tries, fits = searched(lambda groups: 0.2 if 0.25 < groups < 0.26 else 1.6 * groups, 0.41)
    assert not fits, tries
    assert 0.2 in [one.flops for one in tries]
    assert not_below(0.41, tries).num_kept == 117
    assert len(tries) <= 12
