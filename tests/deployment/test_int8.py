"""int8 files agree with the float model, are smaller, whole or absent, and say what is not int8."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainonce.deployment import calibrating, quantizing
from trainonce.deployment.calibrating import layers_in_float
from trainonce.deployment.exporting import write_onnx
from trainonce.deployment.quantizing import Int8, export_int8
from trainonce.errors import ExportError
from trainonce.storage.artifact.about import About, note_about
from trainonce.training.batches.sources import TensorSamples

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

CLASSES = 4
FILES: dict[str, bytes] = {}


class Net(nn.Module):
    def __init__(self, width: int = 16, upsampled: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2) if upsampled else nn.Identity()
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.up(self.norm(self.stem(x)))).mean(dim=(2, 3)))


def make_samples(count: int = 24) -> TensorSamples:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % CLASSES
    return TensorSamples(torch.randn(count, 3, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1), labels)


def make_net(**settings) -> nn.Module:
    torch.manual_seed(0)
    model = Net(**settings)
    with torch.no_grad():
        model.train()(make_samples().inputs)
    return model.eval()


@pytest.fixture(autouse=True)
def float_files_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting takes seconds, and the same model gives the same file."""

    def write(model: nn.Module, samples: TensorSamples, path: Path) -> None:
        if repr(model) not in FILES:
            write_onnx(model, samples, path)
            FILES[repr(model)] = path.read_bytes()
        path.write_bytes(FILES[repr(model)])

    monkeypatch.setattr(quantizing, "write_onnx", write)


def export(path: Path, **changes) -> Int8:
    given = {"small": make_net(), "calibration": make_samples(), "validation": make_samples()} | changes
    small = given.pop("small")
    return export_int8(small, make_net(width=32), path, seconds=0.0, batch_sizes=(1, 4), **given)


def scores_of(path: Path, inputs: Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"images": inputs.numpy()})[0]


def refused(path: Path, **changes) -> str:
    with pytest.raises(ExportError) as caught:
        export(path, **changes)
    assert list(path.parent.iterdir()) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_int8_says_what_the_float_model_says_in_fewer_bytes(tmp_path: Path):
    found = export(tmp_path / "model.onnx")
    samples, small = make_samples(), make_net()
    with torch.no_grad():
        wanted = small(samples.inputs).numpy()
    scores = scores_of(found.path, samples.inputs)
    # Rounding to 8 bits in each of three layers: at most a few steps of 1/255 of the range.
    assert np.abs(scores - wanted).max() <= 10 / 255 * np.ptp(wanted)
    assert not np.array_equal(scores, wanted)
    stored = {tensor.name: tensor for tensor in onnx.load(found.path).graph.initializer}
    assert stored["stem.weight_quantized"].data_type == onnx.TensorProto.INT8
    assert len(stored["stem.weight_scale"].dims) == 1
    dense, small_float, int8 = found.standings
    assert [dense.name, small_float.name, int8.name] == ["dense", "small", "small int8"]
    assert int8.bytes == found.path.stat().st_size
    assert dense.bytes > small_float.bytes
    right = 100 * (scores.argmax(1) == samples.targets.numpy()).mean()
    assert int8.top1 == pytest.approx(right)
    assert dense.top1 is None
    assert found.num_layers == 2
    assert found.left_in_float == {}
    for standing in found.standings:
        assert standing.milliseconds.keys() == {"1", "4"}


def test_the_same_samples_give_the_same_bytes(tmp_path: Path):
    one, other = (export(tmp_path / name).path.read_bytes() for name in ("one.onnx", "other.onnx"))
    assert one == other


def test_an_int8_file_says_what_it_is_and_nothing_about_this_machine(tmp_path: Path):
    small = make_net()
    note_about(small, About(name="mine:net", classes=("a", "b", "c", "d")))
    path = export(tmp_path / "model.onnx", small=small).path
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    known = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    assert known["classes"] == ["a", "b", "c", "d"]
    assert str(Path(__file__).parent).encode() not in path.read_bytes()


def test_layers_that_are_not_int8_are_named_with_the_reason(tmp_path: Path):
    found = export(tmp_path / "model.onnx", small=make_net(upsampled=True))
    (reason,) = found.left_in_float.values()
    assert "ConvTranspose has no fast int8 kernel" in reason
    assert found.num_layers == 2


def test_ranges_come_from_other_samples_than_those_they_are_judged_on():
    samples = make_samples()
    found = calibrating.read_calibration(samples)
    rows = [
        {tuple(image.ravel()) for batch in part for image in batch} for part in (found.seen, found.judged)
    ]
    assert len(rows[0]) == len(rows[1]) == len(samples) // 2
    assert not rows[0] & rows[1]


def test_the_candidate_that_differs_least_is_chosen(tmp_path: Path):
    samples = make_samples()
    with torch.no_grad():
        samples.inputs[:4] *= 30  # a range that few values need
    quantizing.write_onnx(make_net(), samples, tmp_path / "float.onnx")
    batches = calibrating.read_calibration(samples)
    chosen = calibrating.quantize(tmp_path / "float.onnx", batches, tmp_path)
    differences = []
    for candidate in calibrating.CANDIDATES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calibrating, "CANDIDATES", (candidate,))
            found = calibrating.quantize(tmp_path / "float.onnx", batches, tmp_path)
        differences.append(found.difference)
    assert chosen.difference == min(differences)
    assert layers_in_float(chosen.content) == (2, {})


class Broken(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float("nan")


class Weightless(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1)[:, :CLASSES]


def test_what_cannot_be_quantized_is_refused_in_one_line_and_nothing_is_written(tmp_path: Path):
    path = tmp_path / "model.onnx"
    assert "diverged" in refused(path, small=Broken().eval())
    assert "no layer of this model can be quantized" in refused(path, small=Weightless())
    empty = TensorSamples(torch.zeros(0, 3, 8, 8), torch.zeros(0, dtype=torch.long))
    assert "no training samples" in refused(path, calibration=empty)
    holed = make_samples()
    holed.inputs[3] = float("nan")
    assert "NaN in the training samples" in refused(path, calibration=holed)


def test_a_quantized_model_that_returns_nan_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calibrating, "_relative", lambda *_: float("nan"))
    assert "the quantized model returns NaN" in refused(tmp_path / "model.onnx")


def test_what_onnx_runtime_cannot_do_is_told_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("strange\noperator")

    monkeypatch.setattr(calibrating, "_write", refuse)
    assert "can't quantize this model (strange operator)" in refused(tmp_path / "model.onnx")


def test_ctrl_c_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quantizing, "_time", stop)
    with pytest.raises(KeyboardInterrupt):
        export(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_told_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert "pip install onnx onnxscript onnxruntime" in refused(tmp_path / "model.onnx")
