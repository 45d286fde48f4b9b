"""Models that hold in a buffer what they made for the size of the last input, as timm's ConViT does.

Another shape after the first call.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainonce
from support.runs import Counter, Net, interrupt, make_data, make_settings, same_weights
from trainonce.errors import RunInterruptedError
from trainonce.training import fit
from trainonce.training.loop.average import Average
from trainonce.training.results.widening import widen


class Weighted(Net):
    """Rows count by their place; how much is computed once for every size, and is no part of the state."""

    rows: Tensor

    def __init__(self, *, starts_empty: bool = False) -> None:
        super().__init__()
        self.register_buffer("rows", None if starts_empty else torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        if self.rows is None or len(self.rows) != features.shape[2]:
            self.rows = torch.linspace(1, 2, features.shape[2], dtype=x.dtype, device=x.device)
        return self.head((features * self.rows[:, None]).mean(dim=(2, 3)))


def weighted(*, starts_empty: bool = False) -> Weighted:
    torch.manual_seed(0)
    return Weighted(starts_empty=starts_empty)


@pytest.mark.parametrize("starts_empty", [False, True])
def test_a_model_that_has_run_on_another_size_can_be_cut(tmp_path: Path, starts_empty: bool):
    model = weighted(starts_empty=starts_empty).double().eval()
    plan = trainonce.Plan.random(trainonce.inspect(model, torch.randn(2, 3, 8, 8).double()), keep=0.5)
    images = torch.randn(2, 3, 12, 12).double()
    model(images)
    wanted = trainonce.silence(copy.deepcopy(model), plan)(images)
    trainonce.cut(model, plan)
    assert model.head.in_features == 12
    assert (model(images) - wanted).abs().max() < 1e-12
    trainonce.save(model, tmp_path / "small")
    again = trainonce.load(tmp_path / "small", into=weighted(starts_empty=starts_empty).double().eval())
    assert torch.equal(again(images), model(images))


def test_a_buffer_that_is_cut_must_have_its_shape():
    model = weighted().eval()
    plan = trainonce.Plan.random(trainonce.inspect(model, torch.randn(2, 3, 8, 8)), keep=0.5)
    norm = model.body[1]
    assert isinstance(norm, nn.BatchNorm2d)
    norm.running_mean = torch.zeros(15)
    with pytest.raises(
        trainonce.PlanError, match=r"body\.1\.running_mean of shape \(16,\), this one has \(15,\)"
    ):
        trainonce.cut(model, plan)


@pytest.mark.parametrize("starts_empty", [False, True])
def test_the_average_follows_such_buffers(starts_empty: bool):
    model = weighted(starts_empty=starts_empty)
    average = Average(model, decay=0.5)
    for size in (8, 12):
        images = torch.randn(2, 3, size, size)
        model(images)
        average.update(model)
        assert torch.equal(average.model.get_buffer("rows"), model.rows)
        assert average.model.get_buffer("rows") is not model.rows


def test_scripted_parts_are_cut_and_averaged():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        scripted = torch.jit.script(nn.BatchNorm2d(4))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3), scripted)
    with torch.no_grad():
        whole = copy.deepcopy(model)
    average = Average(model, decay=0.5)
    model(torch.randn(4, 3, 8, 8))
    average.update(model)
    mine, theirs = dict(average.model.named_buffers()), dict(model.named_buffers())
    assert mine.keys() == theirs.keys() == {"2.running_mean", "2.running_var", "2.num_batches_tracked"}
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    plan = trainonce.Plan.random(trainonce.inspect(model, torch.randn(1, 3, 8, 8)), keep=0.5)
    trainonce.cut(model, plan)
    average.cut(plan)
    assert model[0].out_channels == average.model.get_submodule("0").out_channels == 4
    with torch.no_grad():
        scripted.weight.fill_(3.0)
    images = torch.randn(2, 3, 8, 8)
    assert torch.allclose(widen(model.eval(), whole.eval())(images), model(images), atol=1e-5)


@pytest.mark.parametrize("starts_empty", [False, True])
def test_a_whole_run_shrinks_goes_on_and_loads(tmp_path: Path, starts_empty: bool):
    settings = make_settings(model_ema=True, model_ema_decay=0.9)

    def run(at: set[int], out: Path | None = None):
        return fit(
            weighted(starts_empty=starts_empty),
            make_data(),
            settings=settings,
            loss=Counter(at, interrupt),
            out=out,
            resume=out is not None,
        )

    whole = run(set())
    assert whole.report["after"]["macs"] <= 0.5 * whole.report["before"]["macs"]
    assert whole.report["agreement"]["num_same"] == whole.report["agreement"]["num_samples"]
    with pytest.raises(RunInterruptedError):
        run({16}, tmp_path / "run")
    result = run(set(), tmp_path / "run")
    assert same_weights(result.model, whole.model)
    assert same_weights(
        trainonce.load(tmp_path / "run" / "small", into=weighted(starts_empty=starts_empty)), whole.model
    )
