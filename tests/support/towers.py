"""Small models with hand-made plans, and what it means that a load is refused."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainonce.errors import ArtifactError
from trainonce.storage.artifact import load, save
from trainonce.structure.channels import AttributeChange, AxisCut
from trainonce.structure.plan import Plan
from trainonce.surgery.slicing import apply_plan, plans_of

FILES = ("plan.json", "model.safetensors", "SHA256SUMS")


class Tower(nn.Module):
    """conv - norm - relu - conv, with a buffer that is cut but not saved."""

    def __init__(self, width: int = 8, num_outputs: int = 3):
        super().__init__()
        self.first = nn.Conv2d(2, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.last = nn.Conv2d(width, num_outputs, 3)
        self.register_buffer("ramp", torch.linspace(0, 1, width), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.norm(self.first(images)).relu() * self.ramp[:, None, None])


class Reader(nn.Module):
    """Word vectors that are read and written through the same table."""

    def __init__(self, width: int = 6, tied: bool = True):
        super().__init__()
        self.words = nn.Embedding(5, width)
        self.answer = nn.Linear(width, 5, bias=False)
        if tied:
            self.answer.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.answer(self.words(tokens))


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def plan_for(model: nn.Module, cuts: tuple[AxisCut, ...], attributes: tuple[AttributeChange, ...]) -> Plan:
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    return Plan(
        model=name, kept={"first": cuts[0].kept}, shapes=shapes_of(model), cuts=cuts, attributes=attributes
    )


def tower_plan(tower: Tower, kept: tuple[int, ...]) -> Plan:
    before, after = tower.first.out_channels, len(kept)
    on_axis_0 = ("first.weight", "first.bias", "norm.weight", "norm.bias")
    followers = ("norm.running_mean", "norm.running_var", "ramp")
    cuts = (
        *(AxisCut(name, 0, kept, True) for name in on_axis_0),
        *(AxisCut(name, 0, kept, False) for name in followers),
        AxisCut("last.weight", 1, kept, False),
    )
    sizes = (("first", "out_channels"), ("norm", "num_features"), ("last", "in_channels"))
    return plan_for(
        tower, cuts, tuple(AttributeChange(module, name, None, before, after) for module, name in sizes)
    )


def reader_plan(reader: Reader, kept: tuple[int, ...]) -> Plan:
    before, after = reader.words.embedding_dim, len(kept)
    attributes = (
        AttributeChange("words", "embedding_dim", None, before, after),
        AttributeChange("answer", "in_features", None, before, after),
    )
    return plan_for(reader, (AxisCut("words.weight", 1, kept, True),), attributes)


def small_tower(kept: tuple[int, ...] = (0, 2, 3, 7), dtype: torch.dtype = torch.float32) -> Tower:
    tower = Tower().to(dtype).eval()
    with torch.no_grad():
        tower.norm.running_mean.normal_()
        tower.norm.running_var.uniform_(0.5, 2)
    apply_plan(tower, tower_plan(tower, kept))
    return tower


def portrait(model: nn.Module) -> dict[str, Any]:
    """Everything that a refused load must leave alone."""
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    sizes = {
        name: {key: value for key, value in vars(module).items() if isinstance(value, int | tuple)}
        for name, module in model.named_modules()
    }
    return {
        "identity": {name: id(tensor) for name, tensor in tensors.items()},
        "values": {
            name: (tuple(tensor.shape), tensor.detach().flatten().tolist())
            for name, tensor in tensors.items()
        },
        "sizes": sizes,
        "plans": plans_of(model),
    }


def assert_equal_models(one: nn.Module, other: nn.Module) -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    for (name, mine), theirs in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs), name


def assert_refused(
    path: Path, into: nn.Module, *, kind: type[ArtifactError] = ArtifactError, names: str = ""
) -> None:
    before = portrait(into)
    with pytest.raises(kind) as caught:
        load(path, into=into)
    assert "\n" not in str(caught.value)
    assert names in str(caught.value)
    assert portrait(into) == before


def rewrite_sums(path: Path) -> None:
    lines = [f"{hashlib.sha256((path / name).read_bytes()).hexdigest()}  {name}\n" for name in FILES[:2]]
    (path / "SHA256SUMS").write_text("".join(lines))


def rewrite_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((path / "plan.json").read_text())
    change(data)
    (path / "plan.json").write_text(json.dumps(data))
    rewrite_sums(path)


def save_small(folder: Path) -> Path:
    torch.manual_seed(0)
    save(small_tower(), folder / "small")
    return folder / "small"
