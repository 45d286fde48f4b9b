"""A cut model is an ordinary one: torch.export and ONNX take it, and give the same output for any batch."""

from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

import trainonce

BATCH = ({0: torch.export.Dim.DYNAMIC},)


def build_resnet() -> nn.Module:
    return torchvision.models.resnet18(num_classes=10)


def build_mobilenet() -> nn.Module:
    return torchvision.models.mobilenet_v3_small(num_classes=10)


def build_vit() -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=10)


def small_model(build: Callable[[], nn.Module]) -> tuple[nn.Module, int]:
    """A model with half of its channels gone, and how many parameters it had before."""
    torch.manual_seed(0)
    model = build().eval()
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    partition = trainonce.inspect(model, torch.randn(2, 3, 32, 32))
    trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5, seed=0))
    return model, num_parameters


@pytest.fixture(
    scope="module", params=[build_resnet, build_mobilenet, build_vit], ids=lambda build: build.__name__
)
def small(request: pytest.FixtureRequest) -> nn.Module:
    model, num_parameters = small_model(request.param)
    assert sum(parameter.numel() for parameter in model.parameters()) < 0.8 * num_parameters
    return model


def assert_close(found: Tensor, wanted: Tensor) -> None:
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max().clamp_min(1)


@pytest.mark.parametrize("batch_size", [2, 5])
def test_the_exported_program_equals_the_model(small: nn.Module, batch_size: int):
    program = torch.export.export(small, (torch.randn(2, 3, 32, 32),), dynamic_shapes=BATCH)
    images = torch.randn(batch_size, 3, 32, 32)
    with torch.no_grad():
        assert_close(program.module()(images), small(images))


def test_onnx_runtime_equals_the_model(small: nn.Module, tmp_path: Path):
    path = tmp_path / "small.onnx"
    torch.onnx.export(
        small, (torch.randn(2, 3, 32, 32),), path, dynamo=True, dynamic_shapes=BATCH, verbose=False
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch_size in (1, 2, 5):
        images = torch.randn(batch_size, 3, 32, 32)
        (found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
        with torch.no_grad():
            assert_close(torch.from_numpy(found), small(images))


def test_a_loaded_model_exports_like_the_saved_one(tmp_path: Path):
    model, _ = small_model(build_resnet)
    trainonce.save(model, tmp_path / "small")
    again = trainonce.load(tmp_path / "small", into=build_resnet().eval())
    images = torch.randn(2, 3, 32, 32)
    program = torch.export.export(again, (images,), dynamic_shapes=BATCH)
    with torch.no_grad():
        assert torch.equal(program.module()(images), model(images))
