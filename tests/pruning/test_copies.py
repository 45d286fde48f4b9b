"""An averaged copy does not follow a cut by itself.

It is said before anything is lost, and what is advised works.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import trainonce
from support.digits import attached, batch, convolutional, digits, train
from trainonce import Schedule, Settings
from trainonce.pruning import policies
from trainonce.pruning.guards.copies import Copies

SCHEDULE = Schedule(search_from=5, shrink_from=10, first_cut_from=20, settle_from=35, update_every=1)
WIDTH = 11
"""Of the models in this file only: what another test has left alive is no copy of them."""


def begun(**settings: Any) -> tuple[nn.Module, torch.optim.Optimizer, trainonce.Pruner]:
    model = convolutional(WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return (
        model,
        optimizer,
        attached(model, optimizer, 60, **{"policy": policies.FilterNorm(), "schedule": SCHEDULE} | settings),
    )


def words(kind: str, path: str) -> str:
    return (
        rf"^an averaged copy of this model \({kind}[^\n]*\) will not follow [^\n]*trainonce\.cut\({path}, "
        r"pruner\.cuts\[-1\]\)\.$"
    )


def averaged(model: nn.Module) -> AveragedModel:
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


@pytest.mark.parametrize("use_buffers", [False, True])
def test_the_advice_works_and_gives_the_average_of_the_small_model(use_buffers: bool):
    """Cut with the model, the average is the one that would have been, without what was cut."""
    model, optimizer, pruner = begun()
    whole, other_optimizer, other = begun(shrink=False)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
    reference = AveragedModel(whole, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)

    def after(_step: int, cut: bool) -> None:
        if cut:
            trainonce.cut(average.module, pruner.cuts[-1])
        average.update_parameters(model)

    with pytest.warns(RuntimeWarning, match=words("AveragedModel", r"average\.module")) as said:
        train(model, optimizer, pruner, steps=range(60), size=8, after=after)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(
            whole,
            other_optimizer,
            other,
            steps=range(60),
            size=8,
            after=lambda *_: reference.update_parameters(whole),
        )
    small = pruner.finish()
    other.finish()
    for plan in pruner.cuts:
        trainonce.cut(reference.module, plan)
    assert {name: tensor.shape for name, tensor in average.module.state_dict().items()} == {
        name: tensor.shape for name, tensor in small.state_dict().items()
    }
    for name, parameter in average.module.named_parameters():
        assert torch.allclose(
            parameter, dict(reference.module.named_parameters())[name], rtol=1e-3, atol=1e-4
        ), name


def test_timms_average_is_found_and_the_advice_works():
    timm_utils = pytest.importorskip("timm.utils")
    model, optimizer, pruner = begun()
    average = timm_utils.ModelEmaV3(model, decay=0.9)

    def after(_step: int, cut: bool) -> None:
        if cut:
            trainonce.cut(average.module, pruner.cuts[-1])
        average.update(model)

    with pytest.warns(RuntimeWarning, match=words("ModelEmaV3", r"average\.module")) as said:
        train(model, optimizer, pruner, steps=range(60), size=8, after=after)
    assert len(said) == 1
    assert average.module[1][0].weight.shape == pruner.finish()[1][0].weight.shape


def by_data(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)


def by_copy(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    with torch.no_grad():
        mine.copy_(0.9 * mine + 0.1 * theirs)


@pytest.mark.parametrize("move", [by_data, by_copy])
def test_a_deepcopy_that_a_loop_of_ones_own_averages_is_found(
    move: Callable[[torch.Tensor, torch.Tensor], None],
):
    model, optimizer, pruner = begun()
    average = copy.deepcopy(model)

    def after(_step: int, cut: bool) -> None:
        if cut:
            trainonce.cut(average, pruner.cuts[-1])
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            move(mine, theirs)

    with pytest.warns(RuntimeWarning, match=words("a second Sequential", "average")) as said:
        train(model, optimizer, pruner, steps=range(60), size=8, after=after)
    assert len(said) == 1
    assert pruner.finish()[1][0].weight.shape == average[1][0].weight.shape


def test_it_is_said_in_the_first_steps_and_points_at_the_loop():
    model, optimizer, pruner = begun()
    average = averaged(model)
    with pytest.warns(RuntimeWarning, match="averaged copy") as said:
        train(model, optimizer, pruner, steps=range(1), size=8)
    assert said[0].filename.endswith("digits.py")
    assert average.n_averaged == 0, "it need not have moved"


def test_an_average_that_is_made_later_is_found_before_the_cut():
    model, optimizer, pruner = begun()
    train(model, optimizer, pruner, steps=range(15), size=8)
    average = averaged(model)
    with pytest.warns(RuntimeWarning, match="averaged copy"):
        train(model, optimizer, pruner, steps=range(15, 20), size=8)
    assert not pruner.cuts
    assert average.module[1][0].out_channels == 2 * WIDTH


def teachers(model: nn.Module) -> Iterator[Any]:
    yield copy.deepcopy(model)
    yield copy.deepcopy(model).requires_grad_(False).eval()
    yield nn.ModuleDict({"baseline": copy.deepcopy(model)})
    yield averaged(convolutional(WIDTH - 1))
    yield nn.DataParallel(model)
    yield {"best": copy.deepcopy(model.state_dict())}


def test_teachers_baselines_wrappers_and_averages_of_others_are_not_meant():
    model, optimizer, pruner = begun()
    kept = list(teachers(model))
    # A warning would fail the test.
    train(model, optimizer, pruner, steps=range(60), size=8)
    assert pruner.finish() is model
    assert len(kept) == 6


def test_a_second_model_that_is_trained_itself_is_not_meant():
    model, optimizer, pruner = begun()
    other = convolutional(WIDTH)
    its = torch.optim.SGD(other.parameters(), lr=0.05)
    for step in range(60):
        F.cross_entropy(other(batch(step, 8)[0]), batch(step, 8)[1]).backward()
        its.step()
        its.zero_grad()
        train(model, optimizer, pruner, steps=range(step, step + 1), size=8)
    assert pruner.finish() is model


def test_an_average_that_is_gone_is_not_meant():
    model, optimizer, pruner = begun()
    ring: list[Any] = [averaged(model)]
    ring.append(ring)
    del ring
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(model, optimizer, pruner, steps=range(1), size=8)
    assert [str(warning.message) for warning in said] == []


def test_fits_own_average_follows_and_nothing_is_said():
    images, labels, held_images, held_labels = digits()
    model = convolutional(WIDTH)
    data = (images[:128], labels[:128]), (held_images[:32], held_labels[:32])
    settings = Settings(epochs=4, batch_size=8, model_ema=True, keep_flops=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", trainonce.ShortRunWarning)
        result = trainonce.fit(model, data, settings=settings)
    assert result.model is not model
    assert result.model[1][0].weight.shape == model[1][0].weight.shape
    assert model[1][0].out_channels < 2 * WIDTH


class Proxy:
    """An object that loads something when it is asked for its class, as lazy imports are."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise ImportError("nobody may ask")


def test_looking_around_disturbs_nobody():
    proxy = [Proxy()]
    half_made = nn.Linear.__new__(nn.Linear)
    assert Copies(convolutional(WIDTH)).complaint() is None
    assert proxy
    assert "_parameters" not in vars(half_made)
