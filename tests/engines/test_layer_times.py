"""Laws of milliseconds per layer: every layer has its row in each engine, and nothing is left behind."""

import copy

import pytest
import torch
from torch import Tensor, nn

from trainonce.engines.counting import count_macs
from trainonce.engines.layer_times import LAYER_ENGINES, time_layers
from trainonce.errors import EngineError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU()
        self.branch = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Tensor:
        x = self.act(self.norm(self.stem(images)))
        return self.head((x + self.branch(x)).mean(dim=(2, 3)))


@pytest.mark.parametrize("engine", LAYER_ENGINES)
def test_each_layer_has_a_row_with_its_flops_and_milliseconds(engine: str):
    if engine == "onnxruntime":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package)
    model, example = Net().eval(), torch.randn(2, 3, 8, 8)
    before = copy.deepcopy(model.state_dict())
    rows = time_layers(model.train(), example, engine=engine, seconds=0.0)
    layers = [row for row in rows if row.macs]
    assert [row.name for row in layers] == ["stem", "branch", "head"]
    assert sum(row.macs for row in rows) == count_macs(model, example)
    assert all(row.milliseconds >= 0 for row in rows)
    assert sum(row.milliseconds for row in layers) > 0
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_engine_without_layers_is_refused():
    with pytest.raises(EngineError, match="Choose one of eager, onnxruntime"):
        time_layers(Net(), torch.randn(1, 3, 8, 8), engine="compiled")


def test_an_engine_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(EngineError, match="pip install onnx onnxscript onnxruntime"):
        time_layers(Net(), torch.randn(1, 3, 8, 8), engine="onnxruntime")


def test_a_model_that_cannot_be_exported_is_told_in_one_line():
    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.sum().item() > 0 else x

    with pytest.raises(EngineError, match="ONNX Runtime can't run this model") as caught:
        time_layers(Asking(), torch.ones(2, 3), engine="onnxruntime", seconds=0.0)
    assert "\n" not in str(caught.value)
