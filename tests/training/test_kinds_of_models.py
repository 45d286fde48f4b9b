"""A run comes to its end whatever the model takes and returns.

The small model is written first, and nothing after it can lose it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import trainonce
from support.runs import Listener, Net, make_data, make_net, make_settings, same_weights
from trainonce.runs import records
from trainonce.runs.folder import Stage, stage_of
from trainonce.runs.records import Records
from trainonce.runs.report.verdict import remarks_on
from trainonce.training import fit, stages
from trainonce.training.results import closing, outcome

NUM_SAMPLES = 48


class Body(nn.Module):
    """What all of these models share; `returns` makes their output from features and scores."""

    def __init__(self, num_outputs: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.head = nn.Linear(24, num_outputs)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.features(x))


class TakesTwo(Body):
    def forward(self, x: Tensor, scale: Tensor) -> Any:
        return super().forward(x) * scale


class Regression(Body):
    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, x: Tensor) -> Any:
        return super().forward(x)[:, 0]


class ReturnsDict(Body):
    def forward(self, x: Tensor) -> Any:
        features = self.features(x)
        return {"scores": self.head(features), "norm": features.square().mean(dim=1)}


class ReturnsList(Body):
    def forward(self, x: Tensor) -> Any:
        return [super().forward(x), {"twice": [2 * super().forward(x)]}]


class Rows(Dataset):
    """Samples made by a function of their number."""

    def __init__(self, sample: Any) -> None:
        self.sample = sample

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        return self.sample(index)


X = torch.randn(NUM_SAMPLES, 6, generator=torch.Generator().manual_seed(0))
LABELS = X[:, :3].argmax(dim=1)
ONE = torch.ones(1)


def dict_loss(output: Any, targets: Any) -> Tensor:
    return nn.functional.cross_entropy(output["scores"], targets) + 0.01 * output["norm"].mean()


def list_loss(output: Any, targets: Any) -> Tensor:
    return nn.functional.cross_entropy(output[0], targets) + 0.01 * output[1]["twice"][0].square().mean()


def two_targets_loss(output: Any, targets: Any) -> Tensor:
    return nn.functional.mse_loss(output, targets["values"])


KINDS: dict[str, tuple[type[nn.Module], Any, Any]] = {
    "dict_inputs": (TakesTwo, lambda i: ({"x": X[i], "scale": ONE}, LABELS[i]), None),
    "tuple_inputs": (TakesTwo, lambda i: ((X[i], ONE), LABELS[i]), None),
    "one_axis_out": (Regression, lambda i: (X[i], X[i].sum()), nn.functional.mse_loss),
    "binary": (
        Regression,
        lambda i: (X[i], (LABELS[i] == 1).float()),
        nn.functional.binary_cross_entropy_with_logits,
    ),
    "binary_numbers": (
        Regression,
        lambda i: (X[i], LABELS[i] % 2),
        lambda o, t: nn.functional.mse_loss(o, t.float()),
    ),
    "dict_out": (ReturnsDict, lambda i: (X[i], LABELS[i]), dict_loss),
    "list_out": (ReturnsList, lambda i: (X[i], LABELS[i]), list_loss),
    "dict_targets": (Body, lambda i: (X[i], {"values": X[i, :3]}), two_targets_loss),
}
NO_CLASSES = {"one_axis_out", "binary", "binary_numbers", "dict_out", "dict_targets"}


def run(kind: str, out: Path | None = None, **options: Any):
    build, sample, loss = KINDS[kind]
    torch.manual_seed(0)
    settings = make_settings(epochs=6, lr=0.01, keep_flops=0.6)
    return fit(
        build(), (Rows(sample), Rows(sample)), settings=settings, loss=loss, out=out, quiet=True, **options
    )


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_of_model_is_trained_saved_measured_and_compared(kind: str, tmp_path: Path):
    result = run(kind, tmp_path / "run")
    report = result.report
    assert report["missing"] == {}
    assert report["after"]["macs"] <= 0.6 * report["before"]["macs"]
    assert report["after"]["latency_ms"]["median"] > 0
    assert report["agreement"]["num_samples"] == NUM_SAMPLES
    assert report["agreement"]["largest_difference"] < 1e-5
    same = report["agreement"]["num_same"]
    assert same is None if kind in NO_CLASSES else same == NUM_SAMPLES
    assert (report["after"]["top1"] is None) == (kind in NO_CLASSES)
    assert same_weights(trainonce.load(tmp_path / "run" / "small", into=KINDS[kind][0]()), result.model)
    assert (tmp_path / "run" / "report.html").is_file()
    assert (tmp_path / "run" / "small" / "README.md").is_file()


@pytest.mark.parametrize("kind", ["dict_inputs", "tuple_inputs"])
def test_tensors_in_dicts_and_tuples_are_data_too(kind: str):
    inputs = {"x": X, "scale": torch.ones(NUM_SAMPLES, 1)}
    pair = (inputs if kind == "dict_inputs" else tuple(inputs.values()), LABELS)
    torch.manual_seed(0)
    settings = make_settings(epochs=6, lr=0.01, keep_flops=0.6)
    found = fit(TakesTwo(), (pair, pair), settings=settings, quiet=True)
    assert same_weights(found.model, run(kind).model)


def test_a_difference_in_any_part_of_the_output_is_seen(monkeypatch: pytest.MonkeyPatch):
    real = outcome.widen

    def spoiled(small: nn.Module, dense: nn.Module) -> nn.Module:
        wide = real(small, dense)
        wide.register_forward_hook(lambda module, inputs, output: output | {"norm": output["norm"] * 1.5})
        return wide

    monkeypatch.setattr(outcome, "widen", spoiled)
    assert run("dict_out").report["agreement"]["largest_difference"] == pytest.approx(1 / 3)


def test_targets_in_a_dict_weigh_as_much_as_a_tensor():
    def trained(sample: Any, loss: Any) -> nn.Module:
        torch.manual_seed(0)
        settings = make_settings(epochs=2, keep_flops=1, lr=0.01)
        return fit(Body(), (Rows(sample), Rows(sample)), settings=settings, loss=loss, quiet=True).model

    plain = trained(lambda i: (X[i], X[i, :3]), nn.functional.mse_loss)
    assert same_weights(plain, trained(lambda i: (X[i], {"values": X[i, :3]}), two_targets_loss))


BREAKABLE = {
    "latency": (closing, "measure_both"),
    "comparison with the dense model": (closing, "compare_both"),
    "layers": (closing, "describe_layers"),
    "page": (closing, "write_report"),
}


@pytest.mark.parametrize("part", list(BREAKABLE))
def test_a_part_of_the_report_that_fails_is_told_and_loses_nothing(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("of all\nthings")

    monkeypatch.setattr(*BREAKABLE[part], fail)
    view = Listener()
    result = fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", view=view)
    assert [line for line in view.lines if line.startswith("the report has")] == [
        f"the report has no {part} (RuntimeError: of all things)"
    ]
    assert same_weights(trainonce.load(tmp_path / "run" / "small", into=Net()), result.model)
    assert stage_of(tmp_path / "run") is Stage.FINISHED
    if part != "page":
        assert result.report["missing"] == {part: "RuntimeError: of all things"}
        assert any("of all things" in line for line in remarks_on(result.report))
        assert "of all things" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_the_small_model_is_there_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = []

    def look(*_: object, **__: object) -> dict[str, Any]:
        seen.append(trainonce.load(tmp_path / "run" / "small", into=Net()))
        return {}

    monkeypatch.setattr(stages, "make_report", look)
    result = fit(make_net(), make_data(), settings=make_settings(epochs=3), out=tmp_path / "run", quiet=True)
    (found,) = seen
    assert same_weights(found, result.model)


@pytest.mark.parametrize("place", ["keep", "make_report", "finish"])
def test_a_run_that_was_killed_at_its_end_goes_on_without_training(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    whole = fit(make_net(), make_data(), settings=make_settings(), quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(stages if place == "make_report" else Records, place, die)
        with pytest.raises(Killed):
            fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", quiet=True)
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "small").glob("*")}
    assert bool(written) == (place != "keep")
    assert stage_of(tmp_path / "run") is Stage.UNFINISHED

    def refuse(*_: object) -> None:
        raise AssertionError("trained again")

    view = Listener()
    monkeypatch.setattr("trainonce.training.loop.trainer.Trainer.run_step", refuse)
    result = fit(
        make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", resume=True, view=view
    )
    assert "resuming at step 24 of 24" in view.lines
    assert same_weights(result.model, whole.model)
    assert (
        json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))["agreement"]["num_same"]
        == 32
    )
    # What was whole is not written again: a second kill could only harm it.
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "small").glob("*")}
    assert written.items() <= after.items()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), TypeError("not JSON")])
def test_a_report_that_can_not_be_written_is_told_and_written_later(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = records.write_file

    def full(target: Path, content: str) -> None:
        if target.name == "report.json":
            raise error
        real(target, content)

    view, settings = Listener(), make_settings(epochs=3)
    with monkeypatch.context() as patch:
        patch.setattr(records, "write_file", full)
        result = fit(make_net(), make_data(), settings=settings, out=tmp_path / "run", view=view)
    assert result.report["after"]["macs"] <= 0.5 * result.report["before"]["macs"]
    assert sum("no report" in line and str(error) in line and "resume" in line for line in view.lines) == 1
    again = fit(make_net(), make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True)
    assert same_weights(again.model, result.model)
    assert stage_of(tmp_path / "run") is Stage.FINISHED


def test_batches_that_are_no_pairs_are_refused_before_training():
    three = Rows(lambda i: (X[i], LABELS[i], i))
    with pytest.raises(
        trainonce.SettingError, match=r"a batch of the training data is 3 parts\. Return pairs"
    ):
        fit(Body(), (three, three), settings=make_settings(), quiet=True)
    named = Rows(lambda i: {"x": X[i], "answer": LABELS[i]})
    with pytest.raises(trainonce.SettingError, match="a batch of the training data is a dict of x, answer"):
        fit(Body(), (named, named), settings=make_settings(), quiet=True)
