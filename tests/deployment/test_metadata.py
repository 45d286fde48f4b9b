"""An ONNX file carries what its folder does: the name of the model, its classes, its preprocessing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import trainonce
from trainonce.data.catalogue import open_data
from trainonce.deployment.exporting import export_onnx
from trainonce.storage.artifact.about import About, about_of
from trainonce.training.results.outcome import note_data
from trainonce.zoo.sources import Build, build


def test_an_onnx_file_says_what_it_is(tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    data = open_data("digits")
    model = build("cifar:resnet20", wanted=Build(num_classes=10, image_size=8)).model
    example = next(iter(data.validation.batches([(torch.arange(2), 0)])))[0]
    trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5))
    note_data(model, data)
    export_onnx(model, data.validation, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    found = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    about = About.from_data({key: found[key] for key in ("name", "arguments", "classes", "preprocessing")})
    assert about == about_of(model)
    assert about.name == "cifar:resnet20"
    assert about.classes == data.classes
    assert about.preprocessing is not None
    assert [list(about.preprocessing.mean), list(about.preprocessing.std)] == data.settings["normalization"]
