"""Nets whose pattern is in what goes in, what comes out, and how the layers are held."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import ConvNormRelu, Mlp, image, tokens, words
from graphs.registry import Net, graph


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = ConvNormRelu(3, 12)
        self.right = ConvNormRelu(2, 12)
        self.head = nn.Conv2d(12, 4, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(self.left(left) + self.right(right))


@graph(expect_cut=True, reason="the summed channels of both stems")
def interface_tuple_input() -> Net:
    return TwoInputs(), (image(3), image(2))


@graph(expect_cut=True, reason="the summed channels of both stems")
def interface_dict_input() -> Net:
    return TwoInputs(), {"right": image(2), "left": image(3)}


class MaskedWords(nn.Module):
    """Keyword inputs with a mask and options, output by name (transformers)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 12)
        self.mlp = Mlp(12, 20)
        self.head = nn.Linear(12, 4)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, return_dict: bool = False
    ) -> Tensor | dict[str, Any]:
        x = self.mlp(self.embed(input_ids))
        if attention_mask is not None:
            x = x * attention_mask.unsqueeze(-1)
        logits = self.head(x)
        return {"logits": logits, "states": None} if return_dict else logits


@graph(expect_cut=True, reason="the table's width, the hidden layer, and what the head reads")
def interface_keywords() -> Net:
    mask = torch.ones(2, 7)
    mask[0, 5:] = 0
    return MaskedWords(), {"input_ids": words(), "attention_mask": mask, "return_dict": True}


class NestedInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([ConvNormRelu(3, 8) for _ in range(2)])
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, batch: dict[str, list[Tensor]]) -> Tensor:
        return self.head(sum(layer(x) for layer, x in zip(self.layers, batch["views"], strict=True)))


@graph(expect_cut=True, reason="the summed channels")
def interface_nested_input() -> Net:
    return NestedInput(), ({"views": [image(), image()]},)


class DictOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(ConvNormRelu(3, 12), ConvNormRelu(12, 10))
        self.heads = nn.ModuleDict({"boxes": nn.Conv2d(10, 4, 1), "scores": nn.Conv2d(10, 2, 1)})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.backbone(x)
        return OrderedDict((name, head(x)) for name, head in self.heads.items())


@graph(expect_cut=True, reason="the backbone")
def interface_dict_output() -> Net:
    return DictOutput(), image()


class NestedOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNormRelu(3, 12)
        self.middle = ConvNormRelu(12, 10)
        self.head = nn.Conv2d(10, 4, 1)

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        middle = self.middle(self.stem(x))
        out = self.head(middle)
        return out, {"pooled": [out.mean((2, 3)), (middle.sum(1), 3)], "nothing": None}


@graph(expect_cut=True, reason="the stem, and the middle, whose sum is returned")
def interface_nested_output() -> Net:
    return NestedOutput(), image()


class ReturnsFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNormRelu(3, 12)
        self.middle = ConvNormRelu(12, 10)
        self.head = nn.Conv2d(10, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.middle(self.stem(x))
        return self.head(features), features


@graph(expect_cut=True, reason="the stem; what is returned must keep its width")
def interface_returns_features() -> Net:
    return ReturnsFeatures(), image()


class ReturnsAll(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([ConvNormRelu(3, 8), ConvNormRelu(8, 8), ConvNormRelu(8, 8)])

    def forward(self, x: Tensor) -> list[Tensor]:
        features = []
        for layer in self.layers:
            x = layer(x)
            features.append(x)
        return features


@graph(expect_cut=False, reason="every layer's channels are returned")
def interface_returns_everything() -> Net:
    return ReturnsAll(), image()


class Prediction(NamedTuple):
    mean: Tensor
    spread: Tensor


class NamedOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.out = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Prediction:
        mean, spread = self.out(self.body(x)).split(4, dim=-1)
        return Prediction(mean, F.softplus(spread))


@graph(expect_cut=True, reason="the hidden layer")
def interface_named_output() -> Net:
    return NamedOutput(), tokens()


@dataclass
class State:
    hidden: Tensor
    steps: int


class PassesObjects(nn.Module):
    """An object of the user's own class travels between the modules."""

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = Mlp(12, 20)

        def forward(self, state: State) -> State:
            return State(hidden=state.hidden + self.mlp(state.hidden), steps=state.steps + 1)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.step = self.Step()
        self.out = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = State(hidden=self.first(x), steps=0)
        while state.steps < 2:
            state = self.step(state)
        return self.out(state.hidden)


@graph(expect_cut=True, reason="the stream and the hidden layer, which run twice")
def interface_passes_objects() -> Net:
    return PassesObjects(), tokens()


class Containers(nn.Module):
    """Layers in a dict, weights in lists."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleDict({"a": nn.Conv2d(3, 8, 3, padding=1), "b": nn.Conv2d(8, 8, 1)})
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(8, 1, 1)) for _ in range(2)])
        self.offsets = nn.ParameterDict({"a": nn.Parameter(torch.zeros(8, 1, 1))})
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.convs["a"](x) * self.scales[0] + self.offsets["a"])
        return self.head(F.relu(self.convs["b"](x) * self.scales[1]))


@graph(expect_cut=True, reason="both layers with their scales and offsets")
def interface_containers() -> Net:
    return Containers(), image()


class WrappedModel(nn.Module):
    """Forward by `*args`, through an inner model held in a plain list of the same modules."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(ConvNormRelu(3, 12), ConvNormRelu(12, 10), nn.Conv2d(10, 4, 1))
        self.order = list(self.model)

    def forward(self, *args: Tensor, **kwargs: Any) -> Tensor:
        x = args[0]
        for layer in self.order:
            x = layer(x)
        return x


@graph(expect_cut=True, reason="both layers")
def interface_wrapped() -> Net:
    return WrappedModel(), (image(),)


@graph(expect_cut=False, reason="one layer between the input and the output")
def interface_single_layer() -> Net:
    return nn.Linear(6, 4), tokens()


@graph(expect_cut=True, reason="the hidden layer; the model is used without a batch")
def interface_unbatched() -> Net:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(6)
