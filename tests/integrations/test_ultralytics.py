"""A YOLO that Ultralytics trains is small in every file that it leaves, and ordinary without trainonce."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch

import trainonce
from integrations.yolo_runs import SETTINGS, SIZE, draw, opened_without_trainonce

pytest.importorskip("ultralytics", reason="needs ultralytics")

from ultralytics import YOLO
from ultralytics.nn.modules import C2f

from trainonce.integrations.small_yolo import REFUSAL
from trainonce.integrations.ultralytics import count_steps, prune

MODELS = ["yolov8n", "yolo11n", "yolo12n", "yolo26n", "yolo11n-seg"]

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning"),
    # Ultralytics' and the exporter's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

Train = Callable[..., Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """A pruned run of a model by name, trained once."""
    folder, known = tmp_path_factory.mktemp("runs"), {}

    def run(name: str) -> Any:
        if name not in known:
            torch.manual_seed(0)
            known[name] = prune(YOLO(f"{name}.yaml"), keep_flops=0.5)
            place = {"data": str(data), "project": str(folder), "name": name}
            known[name].train(epochs=3, save_json=True, **place, **SETTINGS)
        return known[name]

    return run


def num_parameters(model: Any) -> int:
    return sum(part.numel() for part in model.parameters())


def macs(model: Any) -> int:
    return trainonce.inspect(model, torch.rand(1, 3, SIZE, SIZE)).macs


@pytest.mark.parametrize("name", MODELS)
def test_the_files_hold_the_small_average(name: str, runs: Callable[[str], Any]) -> None:
    model = runs(name)
    trainer = model.trainer
    pruner = trainer.pruner
    assert pruner.shrunk
    assert pruner.num_steps == count_steps(trainer) == 6
    small = num_parameters(pruner.model)
    assert small < 0.8 * sum(torch.Size(shape).numel() for shape in pruner.plan.shapes.values())
    for weights in (trainer.best, trainer.last):
        loaded = YOLO(weights).model
        assert num_parameters(loaded) == num_parameters(trainer.ema.ema) == small
        assert macs(loaded) <= 0.5 * pruner.partition.macs
        average = trainer.ema.ema.state_dict()
        if weights == trainer.last:
            assert all(
                torch.equal(average[key].half().float(), item)
                for key, item in loaded.state_dict().items()
                if item.is_floating_point()
            )


def test_the_average_goes_on_after_the_cut(runs: Callable[[str], Any]) -> None:
    trainer = runs("yolov8n").trainer
    average, model = trainer.ema.ema, trainer.model
    before = {name: item.clone() for name, item in average.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    trainer.ema.update(model)
    share = 1 - trainer.ema.decay(trainer.ema.updates)
    now = model.state_dict()
    for name, item in average.state_dict().items():
        if item.is_floating_point():
            torch.testing.assert_close(item, before[name].lerp(now[name], share))


def test_without_trainonce_the_boxes_are_those_of_the_training(
    runs: Callable[[str], Any], data: Path, tmp_path: Path
) -> None:
    settings = {"data": str(data), "project": str(tmp_path), **SETTINGS}
    settings.pop("optimizer")
    trainers = {str(runs(name).trainer.best): runs(name).trainer for name in MODELS}
    batches = {weights: {**settings, "name": str(number)} for number, weights in enumerate(trainers)}
    for weights, found in opened_without_trainonce(batches, tmp_path).items():
        trainer = trainers[weights]
        assert found["num_parameters"] == num_parameters(trainer.model)
        assert found["metrics"] == pytest.approx(trainer.validator.metrics.results_dict, abs=1e-6)
        boxes = json.loads((trainer.save_dir / "predictions.json").read_text())
        assert len(boxes) == len(found["boxes"]) > 0
        for ours, theirs in zip(boxes, found["boxes"], strict=True):
            assert (ours["image_id"], ours["category_id"]) == (theirs["image_id"], theirs["category_id"])
            assert ours["bbox"] == pytest.approx(theirs["bbox"], abs=1e-2)
            assert ours["score"] == pytest.approx(theirs["score"], abs=1e-4)
        assert found["refusal"] == f"KeyError: {REFUSAL!r}"


@pytest.mark.parametrize("name", MODELS)
def test_onnx_is_the_small_model(name: str, runs: Callable[[str], Any]) -> None:
    weights = runs(name).trainer.best
    image = torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        (expected, *_), file = (
            YOLO(weights).model.eval()(image),
            YOLO(weights).export(format="onnx", imgsz=SIZE, simplify=False, device="cpu"),
        )
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: image.numpy()})[0]
    expected = expected[0] if isinstance(expected, tuple | list) else expected
    torch.testing.assert_close(
        torch.from_numpy(found).flatten().sort()[0], expected.flatten().sort()[0], rtol=1e-3, atol=1e-3
    )


def test_blocks_compute_the_same_by_either_method(runs: Callable[[str], Any]) -> None:
    model = YOLO(runs("yolo11n").trainer.best).model.eval()
    blocks = [part for part in model.modules() if isinstance(part, C2f)]
    assert blocks
    for block in blocks:
        features = torch.randn(1, block.cv1.conv.in_channels, 4, 4)
        with torch.no_grad():
            assert torch.equal(block.forward_split(features), block(features))
