"""A saved plan changes only integers that are sizes of this very model, and only as the cut does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs.registry import GRAPHS
from support.towers import assert_equal_models, assert_refused, rewrite_json
from trainonce import ModelMismatchError
from trainonce.storage.artifact.rationing import MOST_ELEMENTS as MOST_IN_RUN
from trainonce.storage.artifact.rationing import Ration, TooLargeError

FAMILIES = (
    "attention",
    "heads",
    "projection",
    "recurrent",
    "size",
    "shuffle",
    "norm_group",
    "conv",
    "concat",
    "algebra",
    "flow",
)


NETS = [name for name in GRAPHS if name.startswith(FAMILIES)]


class Attention(nn.Module):
    """Heads that the cut may take, and integers that it may not touch."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 4
        self.port = 8080
        self.stride = 2
        self.num_classes = 4
        self.padding = (4, 8)
        self.steps = 32
        self.qkv = nn.Linear(12, 96)
        self.out = nn.Linear(32, 12)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).view(*x.shape[:2], 3, self.num_heads, 8).unbind(2)
        found = nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=0.3
        )
        mixed = self.out(found.transpose(1, 2).flatten(2))
        return mixed[:, :: self.stride]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.port = 8
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8, padding=1)
        self.norm = nn.GroupNorm(4, 8)
        self.last = nn.Conv2d(8, 4, 1)
        self.attention = Attention()

    def forward(self, x: Tensor) -> Tensor:
        found = self.last(self.norm(self.depthwise(self.first(x))).relu()).mean(dim=(2, 3))
        return self.attention(found.repeat(1, 3)[:, None].expand(-1, 5, -1))


EXAMPLE = torch.randn(2, 3, 8, 8)


def build() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = build()
    partition = trainonce.inspect(model, EXAMPLE)
    trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5))
    assert (model.attention.num_heads, model.depthwise.groups) == (2, 4)
    trainonce.save(model, tmp_path_factory.mktemp("saved") / "small")
    return tmp_path_factory.getbasetemp() / next(tmp_path_factory.getbasetemp().glob("saved*")) / "small"


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    target = tmp_path / "small"
    target.mkdir()
    for file in original.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def test_it_loads_as_it_was_saved(saved: Path):
    model = build()
    trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, EXAMPLE), keep=0.5))
    assert_equal_models(trainonce.load(saved, into=build()), model)


FORGED = [
    ["attention", "port", None, 8080, 4040],
    ["attention", "stride", None, 2, 1],
    ["attention", "num_classes", None, 4, 2],
    ["attention", "padding", 0, 4, 2],
    ["attention", "padding", 1, 8, 4],
    ["attention", "steps", None, 32, 16],
    ["", "port", None, 8, 4],
    ["first", "stride", 0, 2, 1],
    ["first", "padding", 0, 1, 0],
    ["first", "groups", None, 1, 0],
    ["first", "dilation", 1, 1, 2],
    ["norm", "num_groups", None, 2, 1],
    ["attention.qkv", "_backward_pre_hooks", None, 0, 1],
]


@pytest.mark.parametrize("change", FORGED, ids=lambda change: f"{change[0]}.{change[1]}")
def test_no_other_integer_of_a_module_can_be_set(saved: Path, change: list[Any]):
    rewrite_json(saved, lambda data: data["plans"][0]["attributes"].append(change))
    assert_refused(saved, build(), kind=ModelMismatchError, names=change[1])


@pytest.mark.parametrize("name", ["num_heads", "groups", "num_groups"])
@pytest.mark.parametrize("value", [0, 1, 3, 4, 8, 2**40])
def test_a_size_becomes_what_the_weights_confirm_and_nothing_else(saved: Path, name: str, value: int):
    sizes = next(
        entry
        for entry in json.loads((saved / "plan.json").read_text())["plans"][0]["attributes"]
        if entry[1] == name
    )
    if sizes[4] == value:
        trainonce.load(saved, into=build())
        return

    def forge(data: dict[str, Any]) -> None:
        next(entry for entry in data["plans"][0]["attributes"] if entry[1] == name)[4] = value

    rewrite_json(saved, forge)
    assert_refused(saved, build(), kind=ModelMismatchError, names=name)


def test_a_size_that_is_set_twice_is_refused(saved: Path):
    rewrite_json(
        saved, lambda data: data["plans"][0]["attributes"].append(["attention", "num_heads", None, 4, 3])
    )
    assert_refused(saved, build(), kind=ModelMismatchError, names="num_heads")


def test_without_an_outline_an_example_is_asked_for_and_is_enough(saved: Path):
    rewrite_json(saved, lambda data: data["plans"][0].pop("outline"))
    assert_refused(saved, build(), kind=ModelMismatchError, names="example=")
    model = trainonce.load(saved, into=build(), example=EXAMPLE)
    assert model.attention.num_heads == 2
    rewrite_json(
        saved, lambda data: data["plans"][0]["attributes"].append(["attention", "port", None, 8080, 4040])
    )
    before = build()
    with pytest.raises(ModelMismatchError, match="port"):
        trainonce.load(saved, into=before, example=EXAMPLE)
    assert before.attention.num_heads == 4


OUTLINES: dict[str, Any] = {
    "nothing": None,
    "a text": "image",
    "another shape": {"tensor": [2, 5], "dtype": "float32"},
    "too large": {"tensor": [2, 3, 4096, 4096], "dtype": "float32"},
    "too large inside": {"tensor": [1, 3, 1100, 1100], "dtype": "float32"},
    "negative": {"tensor": [-1], "dtype": "float32"},
    "an unknown dtype": {"tensor": [2, 3, 8, 8], "dtype": "object"},
    "an endless range": {"tensor": [2], "dtype": "int64", "range": [0, 2**80]},
    "deep": {"tuple": [{"tuple": [{"tuple": [{"list": []}]}]}]},
    "no part": {"dict": {"x": 1}},
}


@pytest.mark.parametrize("name", list(OUTLINES))
def test_an_outline_that_is_none_or_asks_for_too_much_is_refused(
    saved: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trainonce.storage.artifact.rationing, "MOST_ELEMENTS", 2**21)
    rewrite_json(saved, lambda data: data["plans"][0].update(outline=OUTLINES[name]))
    assert_refused(saved, build(), kind=ModelMismatchError, names="num_heads")


GROWTHS: dict[str, Callable[[Tensor], Tensor]] = {
    "a product": lambda x: x.reshape(-1, 1) @ x.reshape(1, -1),
    "a sum of a row and a column": lambda x: x.reshape(-1, 1) + x.reshape(1, -1),
    "a comparison of whole numbers": lambda x: x.long().reshape(-1, 1) == x.long().reshape(1, -1),
    "copies": lambda x: x.reshape(-1).repeat(10_000),
    "a convolution": lambda x: nn.functional.conv1d(x.reshape(1, 1, -1), torch.zeros(5000, 1, 1)),
    "zeros": lambda x: x.new_zeros(5000, 5000),
    "a larger image": lambda x: nn.functional.interpolate(x.reshape(1, 1, 1, -1), scale_factor=(400.0, 1.0)),
}


@pytest.mark.parametrize("name", list(GROWTHS))
def test_a_run_ends_before_it_makes_a_large_tensor(name: str, monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            made.extend(
                item.numel()
                for item in (result,)
                if isinstance(item, Tensor) and not item.is_meta and item.is_contiguous()
            )
            return result

    x = torch.randn(70_000)
    with pytest.raises(TooLargeError), Watch(), Ration():
        GROWTHS[name](x)
    assert max(made, default=0) <= MOST_IN_RUN


def test_a_chain_of_cuts_is_confirmed_from_any_point_on_it(tmp_path: Path):
    model, halfway = build(), build()
    for keep, seed in ((0.75, 0), (0.5, 1)):
        trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, EXAMPLE), keep=keep, seed=seed))
    first = trainonce.Plan.random(trainonce.inspect(halfway, EXAMPLE), keep=0.75, seed=0)
    trainonce.cut(halfway, first)
    trainonce.save(model, tmp_path / "small")
    for into in (build(), halfway):
        assert_equal_models(trainonce.load(tmp_path / "small", into=into), model)
        assert into.attention.num_heads == model.attention.num_heads < 3


@pytest.mark.parametrize("limit", ["number", "length"])
def test_more_cuts_than_are_kept_apart_become_one(
    tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
):
    if limit == "number":
        monkeypatch.setattr(trainonce.storage.artifact.manifest, "MOST_PLANS", 1)
    else:
        monkeypatch.setattr(trainonce.storage.artifact.folder, "most_plan_bytes", lambda *_: 100)
    model = build()
    for keep, seed in ((0.75, 0), (0.5, 1)):
        trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, EXAMPLE), keep=keep, seed=seed))
    trainonce.save(model, tmp_path / "small")
    assert len(json.loads((tmp_path / "small" / "plan.json").read_text())["plans"]) == 1
    assert_equal_models(trainonce.load(tmp_path / "small", into=build()), model)


@pytest.mark.parametrize("name", NETS)
def test_every_net_loads_again(name: str, tmp_path: Path):
    model, example = GRAPHS[name].build()
    partition = trainonce.inspect(model, example)
    trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5, seed=1))
    trainonce.save(model, tmp_path / "small")
    again = trainonce.load(tmp_path / "small", into=GRAPHS[name].build()[0])
    assert_equal_models(again, model)
    sizes = [
        {key: value for key, value in vars(module).items() if type(value) is int}
        for module in model.modules()
    ]
    assert [
        {key: value for key, value in vars(module).items() if type(value) is int}
        for module in again.modules()
    ] == sizes
