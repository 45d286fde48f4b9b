"""Encoders and decoders whose stream is among the groups: cut while they train, resumed, as if whole."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs.necks import Mlp
from graphs.streams import PreNorm
from graphs.subjects import redraw

STEPS = 60
SCHEDULE = trainonce.Schedule(search_from=2, shrink_from=4, first_cut_from=15, settle_from=30, update_every=1)
WORDS = torch.randint(17, (STEPS, 4, 8), generator=torch.Generator().manual_seed(0))


class Language(nn.Module):
    """Words in, the next words out, with a stream that every layer reads through a norm."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.words = nn.Embedding(17, 24)
        self.places = nn.Parameter(torch.randn(8, 24))
        if kind == "encoder":
            layer = nn.TransformerEncoderLayer(24, 4, 32, dropout=0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        else:
            norms = (nn.LayerNorm(24), nn.RMSNorm(24)) if kind == "decoder" else (nn.LayerNorm(24),) * 2
            self.layers = nn.Sequential(*(PreNorm(24, norm, hidden=32) for norm in norms), Mlp(24, 32))
        self.head = nn.Linear(24, 17)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.layers(self.words(words) + self.places))


def begun(kind: str, *, shrink: bool = True) -> tuple[nn.Module, torch.optim.Optimizer, trainonce.Pruner]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Language(kind).double()
        redraw(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=WORDS[0],
        keep_flops=0.3,
        total_steps=STEPS,
        streams=True,
        policy=trainonce.policies.FilterNorm(),
        schedule=SCHEDULE,
        shrink=shrink,
    )
    return model, optimizer, pruner


def train(model: nn.Module, optimizer: Any, pruner: trainonce.Pruner, steps: range) -> list[float]:
    losses = []
    for step in steps:
        optimizer.zero_grad()
        scores = model(WORDS[step])
        loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), WORDS[step][:, 1:].flatten())
        loss.backward()
        optimizer.step()
        pruner.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("kind", ["encoder", "decoder", "twice"])
def test_training_takes_the_same_steps_with_and_without_the_cut(kind: str):
    ends = []
    for shrink in (True, False):
        model, optimizer, pruner = begun(kind, shrink=shrink)
        assert any(("words.weight", 1) in slots_of(group) for group in pruner.partition.prunable_groups)
        losses = train(model, optimizer, pruner, range(STEPS))
        width = model.words.weight.shape[1]
        assert (width < 24) == shrink
        small = pruner.finish().eval()
        assert small.words.weight.shape[1] < 24
        with torch.no_grad():
            ends.append((torch.tensor(losses, dtype=torch.double), small(WORDS[0])))
    for one, other in zip(*ends, strict=True):
        assert float((one - other).abs().max()) < 1e-9 * float(other.abs().max())


def slots_of(group: Any) -> set[tuple[str, int]]:
    return {(part.tensor, part.axis) for part in group.slices}


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("stop", [10, 31, 50])
def test_a_resumed_run_ends_with_the_same_bits(kind: str, stop: int):
    model, optimizer, pruner = begun(kind)
    train(model, optimizer, pruner, range(stop))
    file = io.BytesIO()
    torch.save([pruner.state_dict(), model.state_dict(), optimizer.state_dict()], file)
    train(model, optimizer, pruner, range(stop, STEPS))
    wanted = copy.deepcopy(pruner.finish().state_dict())
    file.seek(0)
    states = torch.load(file, weights_only=True)
    model, optimizer, pruner = begun(kind)
    for part, state in zip((pruner, model, optimizer), states, strict=True):
        part.load_state_dict(state)
    train(model, optimizer, pruner, range(stop, STEPS))
    found = pruner.finish().state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
