"""Artifacts of models whose stream was cut, loaded into whole models and into small ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs.subjects import output_tensors, redraw, relative_difference
from trainonce.execution.wide_norm import kept_divisor


class Net(nn.Module):
    """A stream of any width, and heads whose number the module remembers."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.start = nn.Linear(6, width)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * 4 * heads)
        self.out = nn.Linear(4 * heads, width)
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x).reshape(*x.shape[:2], self.width)
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, self.heads, 4).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.head(self.last(x + self.out(found.transpose(1, 2).flatten(2))))


EXAMPLE = torch.randn(2, 5, 6, dtype=torch.double)


def built(width: int = 12, heads: int = 3, seed: int = 0) -> nn.Module:
    model = Net(width, heads).double()
    redraw(model, seed=seed)
    return model.eval()


@pytest.fixture
def saved(tmp_path: Path) -> tuple[nn.Module, Path]:
    model = built()
    partition = trainonce.inspect(model, EXAMPLE, streams=True)
    trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5))
    assert (model.width, model.heads) == (6, 2)
    trainonce.save(model, tmp_path / "small")
    return model, tmp_path / "small"


@pytest.mark.parametrize("sizes", [{}, {"width": 6, "heads": 2}], ids=["whole", "built small"])
def test_a_loaded_norm_divides_as_the_saved_one_does(sizes: dict[str, int], saved: tuple[nn.Module, Path]):
    small, folder = saved
    again: Any = trainonce.load(folder, into=built(**sizes, seed=3))
    assert kept_divisor(again.norm) == kept_divisor(again.last) == 12
    assert relative_difference(output_tensors(small, EXAMPLE), output_tensors(again, EXAMPLE)) == 0


def test_a_small_model_takes_its_own_weights_again(saved: tuple[nn.Module, Path]):
    small, folder = saved
    before = output_tensors(small, EXAMPLE)
    redraw(small, seed=8)
    trainonce.load(folder, into=small)
    assert relative_difference(before, output_tensors(small, EXAMPLE)) == 0
