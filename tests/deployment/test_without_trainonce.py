"""Whatever a small model is saved as, it opens where trainonce is not installed, and says the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import trainonce
from support.elsewhere import run_without_trainonce
from trainonce.deployment.exporting import export_onnx, export_program
from trainonce.training.batches.sources import TensorSamples
from trainonce.zoo.sources import Build, build

pytestmark = pytest.mark.timeout(900)

READERS = {
    "torch.save": """
small = torch.load(file, weights_only=False).eval()
found = small(images)
""",
    "pt2": """
found = torch.export.load(file).module()(images)
""",
    "onnx": """
import json, onnxruntime
session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
found = torch.from_numpy(session.run(None, {"images": images.numpy()})[0])
known = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
print(json.dumps(known))
""",
}

RUN = """
import torch
file, expected = sys.argv[1:]
images, wanted = torch.load(expected)
with torch.no_grad():
    {read}
torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
print("the same")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    for package in ("timm", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"needs {package}")
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    model: nn.Module = build("timm:test_resnet", wanted=Build(num_classes=3, image_size=64)).model.eval()
    images = torch.randn(4, 3, 64, 64)
    trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, images[:2]), keep=0.5))
    fed = trainonce.Preprocessing(mean=(0.5,) * 3, std=(0.2,) * 3, size=64)
    trainonce.save(model, folder / "small", classes=["cat", "dog", "cow"], preprocessing=fed)
    model = trainonce.load(folder / "small")
    found = {"expected": folder / "expected.pt"} | {kind: folder / f"model.{kind}" for kind in READERS}
    with torch.no_grad():
        torch.save((images, model(images)), found["expected"])
    torch.save(model, found["torch.save"])
    samples = TensorSamples(images, torch.zeros(len(images)))
    export_program(model, samples, found["pt2"])
    export_onnx(model, samples, found["onnx"])
    return found


@pytest.mark.parametrize("kind", READERS)
def test_a_file_opens_and_gives_the_same(kind: str, files: dict[str, Path]):
    indented = READERS[kind].strip().replace("\n", "\n    ")
    said = run_without_trainonce(RUN.format(read=indented), str(files[kind]), str(files["expected"]))
    *known, last = said.splitlines()
    assert last == "the same"
    if kind == "onnx":
        about = json.loads(known[-1])
        assert about["classes"] == ["cat", "dog", "cow"]
        assert about["arguments"]["num_classes"] == 3
        assert about["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
        assert {"size", "interpolation"} <= about["preprocessing"].keys()
