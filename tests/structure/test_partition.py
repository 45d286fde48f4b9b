"""A partition is plain data: pickled, compared, and kept without anything of the run that it came from."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import weakref

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs import GRAPHS
from graphs.subjects import inspected
from trainonce.tracing.partition import build_partition
from trainonce.tracing.state.recording import Recording


def plans_of(partition: trainonce.Partition) -> list[trainonce.Plan | str]:
    """Plans of several kinds; for masks that don't fit, the words of the refusal."""
    found: list[trainonce.Plan | str] = [
        trainonce.Plan.random(partition, keep=0.5, seed=0),
        trainonce.Plan.random(partition, keep=0.25, seed=1),
    ]
    for group in partition.prunable_groups[:6]:
        mask = torch.ones(group.num_channels, dtype=torch.bool)
        mask[0] = False
        try:
            found.append(trainonce.Plan.from_masks(partition, {group.name: mask}))
        except trainonce.PlanError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("name", GRAPHS)
def test_pickle_gives_an_equal_partition_that_makes_the_same_plans(name: str):
    partition = inspected(name).partition
    again = pickle.loads(pickle.dumps(partition))
    assert again is not partition
    assert again == partition
    assert hash(again) == hash(partition)
    assert plans_of(again) == plans_of(partition)


def attention() -> tuple[nn.Module, Tensor]:
    """Heads whose number is an attribute, so that a plan has to change it."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads, self.head_dim = 4, 3
            self.qkv, self.out = nn.Linear(6, 36), nn.Linear(12, 6)

        def forward(self, x: Tensor) -> Tensor:
            batch, tokens, _ = x.shape
            q, k, v = (
                self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
            )
            mixed = (q @ k.transpose(-2, -1)).softmax(dim=-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(batch, tokens, self.num_heads * self.head_dim))

    return Attention(), torch.randn(2, 5, 6)


def test_sizes_follow_a_cut_after_pickling():
    model, example = attention()
    partition = pickle.loads(pickle.dumps(trainonce.inspect(model, example)))
    plan = trainonce.Plan.random(partition, keep=0.5)
    assert [(change.name, change.before, change.after) for change in plan.attributes] == [("num_heads", 4, 2)]
    trainonce.cut(model, plan)
    assert model.num_heads == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda found: {"model": "another.Net"},
        lambda found: {"groups": found.groups[1:]},
        lambda found: {"contractions": found.contractions[:-1]},
        lambda found: {"example": found.example + 1},
        lambda found: {"notes": ("seen from afar",)},
        lambda found: {"sizes": dataclasses.replace(found.sizes, rules=found.sizes.rules[1:])},
        lambda found: {
            "groups": (
                dataclasses.replace(
                    found.groups[0],
                    slices=tuple(
                        dataclasses.replace(part, positions=part.positions.flip(0))
                        for part in found.groups[0].slices
                    ),
                ),
                *found.groups[1:],
            )
        },
    ],
)
def test_partitions_that_differ_in_anything_are_not_equal(change):
    partition = trainonce.inspect(*attention())
    assert partition == copy.deepcopy(partition)
    assert partition != dataclasses.replace(partition, **change(partition))
    assert partition != partition.groups


def test_nothing_of_the_recording_is_kept_alive(monkeypatch: pytest.MonkeyPatch):
    made: list[weakref.ref[Recording]] = []
    tensors: list[weakref.ref[Tensor]] = []

    def watched(model, recording, rules, example):
        made.append(weakref.ref(recording))
        values = [
            *recording.weights.values(),
            *(value for move in recording.movements for value in move.results),
        ]
        labels = [layer.ids for value in values for layer in value.layers]
        tensors.extend(map(weakref.ref, [*labels, *recording.slots.values(), recording.book._parent]))
        return build_partition(model, recording, rules, example)

    monkeypatch.setattr("trainonce.tracing.trace.build_partition", watched)
    torchvision = pytest.importorskip("torchvision")
    partition = trainonce.inspect(torchvision.models.swin_t().eval(), torch.randn(1, 3, 64, 64))
    gc.collect()
    assert made
    assert len(tensors) > 500
    assert [ref for ref in (*made, *tensors) if ref() is not None] == []
    assert partition.sizes.rules
    assert trainonce.Plan.random(partition, keep=0.5).cuts
