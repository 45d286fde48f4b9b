"""How much work an inspection is: labels that nobody can cut don't multiply, and the model runs few times."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trainonce
from trainonce.tracing.state.labels import MOST_SPREAD_LABELS, LabelBook


class WindowAttention(nn.Module):
    """Attention in windows of a volume, with a mask made from the sizes of the input."""

    def __init__(self, width: int, window: int) -> None:
        super().__init__()
        self.window, self.mix, self.out = window, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def windows(self, x: Tensor) -> Tensor:
        b, d, h, w, c = x.shape
        n = self.window
        x = x.view(b, d // n, n, h // n, n, w // n, n, c)
        return x.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, n**3, c)

    def forward(self, x: Tensor) -> Tensor:
        b, d, h, w, _ = x.shape
        mask = torch.zeros((1, d // self.window * self.window, h, w, 1), device=x.device)
        mask[:, : d // 2] = 1
        mask = self.windows(mask).squeeze(-1)
        mask = mask.unsqueeze(1) - mask.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, -100.0)
        query, key, value = self.mix(self.windows(x)).chunk(3, dim=-1)
        scores = (query @ key.transpose(1, 2)).view(b, -1, *mask.shape[1:]) + mask
        found = self.out(scores.flatten(0, 1).softmax(-1) @ value)
        n = self.window
        found = found.view(b, d // n, h // n, w // n, n, n, n, -1).permute(0, 1, 4, 2, 5, 3, 6, 7)
        return x + found.reshape(b, d, h, w, -1)


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.attention, self.head = nn.Linear(1, 8), WindowAttention(8, 4), nn.Linear(8, 2)
        self.hidden = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 8))
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        x = self.attention(self.stem(x))
        return self.head(F.relu(x + self.hidden(x)))


def test_masks_of_windows_cost_no_labels():
    model, made = Volume(), []
    fresh = LabelBook.fresh

    def counted(self: LabelBook, count: int) -> Tensor:
        made.append(count)
        return fresh(self, count)

    LabelBook.fresh = counted  # type: ignore[method-assign]
    try:
        partition = trainonce.inspect(model, torch.randn(1, 16, 16, 16, 1))
    finally:
        LabelBook.fresh = fresh  # type: ignore[method-assign]
    assert sum(made) < 20_000
    assert "hidden.0" in {group.name for group in partition.prunable_groups}


def test_an_inspection_runs_the_model_a_few_times():
    model = Volume()
    trainonce.inspect(model, torch.randn(1, 16, 16, 16, 1))
    # In eval and in training mode, with and without values, and twice for the proof.
    assert model.runs <= 8


def test_layers_that_spread_too_far_are_kept_not_followed():
    class Spread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.randn(300))
            self.second = nn.Parameter(torch.randn(300))
            self.head = nn.Linear(300, 4)

        def forward(self, x: Tensor) -> Tensor:
            table = (self.first[:, None] + self.second[None, :]).reshape(2, 150, 300).permute(1, 0, 2)
            return self.head((x + table.reshape(300, 300)).relu())

    model = Spread()
    assert MOST_SPREAD_LABELS < 300 * 300
    partition = trainonce.inspect(model, torch.randn(300, 300))
    trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5))
