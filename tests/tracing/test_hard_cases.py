"""Cut equals silenced, for every net in `graphs`, and inspection leaves the model alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import trainonce
from graphs import GRAPHS, graph
from graphs.subjects import (
    another_input,
    call,
    count_parameters,
    fresh,
    inspected,
    output_tensors,
    relative_difference,
)
from trainonce.structure.channels import Role

TOLERANCE = 1e-9

every_net = pytest.mark.parametrize("name", sorted(GRAPHS))


@dataclass(frozen=True, slots=True)
class Share:
    """Keep a random share of every group."""

    keep: float
    seed: int

    def plans(self, partition: trainonce.Partition) -> Iterator[trainonce.Plan]:
        yield trainonce.Plan.random(partition, keep=self.keep, seed=self.seed)


@dataclass(frozen=True, slots=True)
class SingleChannels:
    """Drop one channel of one group: the smallest cut there is. Nothing else hides what it does."""

    position: Callable[[int], int]

    def plans(self, partition: trainonce.Partition) -> Iterator[trainonce.Plan]:
        for group in partition.prunable_groups:
            if group.num_channels > 1:
                mask = torch.ones(group.num_channels, dtype=torch.bool)
                mask[self.position(group.num_channels)] = False
                yield trainonce.Plan.from_masks(partition, {group.name: mask})


CHOICES = {
    "half": Share(keep=0.5, seed=0),
    "other_half": Share(keep=0.5, seed=1),
    "quarter": Share(keep=0.25, seed=2),
    "single": SingleChannels(position=lambda num_channels: num_channels // 3),
}


def silenced_output(name: str, plan: trainonce.Plan, example: object) -> list[Tensor]:
    model, _ = fresh(name)
    trainonce.silence(model, plan)
    return output_tensors(model, example)


def small_model(name: str, plan: trainonce.Plan) -> nn.Module:
    return trainonce.cut(fresh(name)[0], plan)


def train_once(model: nn.Module, example: object) -> tuple[list[torch.Size], set[str]]:
    """One step in train mode.

    Gives the outputs' shapes and the names of the parameters that got a gradient.
    """
    model.train()
    leaves = [x for x in pytree.tree_leaves(call(model, example)) if isinstance(x, Tensor)]
    loss = sum(x.square().mean() for x in leaves if x.is_floating_point())
    assert isinstance(loss, Tensor)
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    with_gradient = set()
    for name, parameter in model.named_parameters():
        assert bool(torch.isfinite(parameter).all())
        if parameter.grad is not None:
            assert parameter.grad.shape == parameter.shape
            with_gradient.add(name)
    return [x.shape for x in leaves], with_gradient


def test_registry_refuses_duplicates():
    name = next(iter(GRAPHS))
    duplicate = lambda: (nn.Identity(), torch.zeros(1))  # noqa: E731
    duplicate.__name__ = name
    with pytest.raises(ValueError, match=name):
        graph(expect_cut=False, reason="it is there already")(duplicate)


@every_net
def test_inspection_leaves_the_model_alone(name: str):
    subject = inspected(name)
    for part in subject.before:
        assert subject.before[part] == subject.after[part], part


@every_net
def test_inspection_says_the_same_twice(name: str):
    first = inspected(name).partition
    second = trainonce.inspect(*fresh(name), streams=GRAPHS[name].streams)
    assert str(first) == str(second)
    half, same_half = (trainonce.Plan.random(partition, keep=0.5) for partition in (first, second))
    assert half == same_half


@every_net
def test_nothing_is_kept_without_a_reason(name: str):
    partition = inspected(name).partition
    names = [group.name for group in partition.groups]
    assert len(set(names)) == len(names)
    for group in partition.groups:
        assert group.num_channels >= 1
        assert group.kept_because is None or group.kept_because.strip()
        assert group.kept_because is not None or any(part.role is Role.WRITER for part in group.slices)


@every_net
def test_what_can_be_cut_is_cut(name: str):
    if not GRAPHS[name].expect_cut:
        return
    partition = inspected(name).partition
    assert partition.prunable_groups, str(partition)
    assert partition.prunable_macs > 0
    plan = trainonce.Plan.random(partition, keep=0.5)
    assert count_parameters(small_model(name, plan)) < count_parameters(fresh(name)[0])


@every_net
@pytest.mark.parametrize("choice", list(CHOICES))
def test_cut_equals_silenced(name: str, choice: str):
    partition = inspected(name).partition
    _, example = fresh(name)
    for plan in CHOICES[choice].plans(partition):
        small = small_model(name, plan)
        assert not small.training
        # A ReLU may hide a channel from one input, hardly from all.
        for x in (example, another_input(example, seed=1), another_input(example, seed=2)):
            difference = relative_difference(silenced_output(name, plan, x), output_tensors(small, x))
            assert difference <= TOLERANCE, f"{plan.kept}: {difference:.1e}"


@every_net
def test_silenced_model_still_depends_on_what_is_kept(name: str):
    # A plan that silenced everything would make cut and silenced equal for no good reason.
    partition = inspected(name).partition
    model, example = fresh(name)
    plan = trainonce.Plan.random(partition, keep=0.5)
    before = silenced_output(name, plan, example)
    after = silenced_output(name, plan, another_input(example, seed=3))
    has_float_input = any(
        isinstance(x, Tensor) and x.is_floating_point() for x in pytree.tree_leaves(example)
    )
    if (
        has_float_input
        and relative_difference(
            output_tensors(model, example), output_tensors(model, another_input(example, seed=3))
        )
        > 0
    ):
        assert relative_difference(before, after) > 0


@every_net
def test_cut_model_trains(name: str):
    partition = inspected(name).partition
    full, example = fresh(name)
    small = small_model(name, trainonce.Plan.random(partition, keep=0.5))
    full_shapes, full_names = train_once(full, example)
    shapes, names = train_once(small, example)
    assert shapes == full_shapes
    assert names == full_names


def test_branches_of_training_are_cut_right():
    # Evaluation never runs the second head; only here would a wrong cut of it show.
    name = "flow_auxiliary_head"
    plan = trainonce.Plan.random(inspected(name).partition, keep=0.5)
    silenced, example = fresh(name)
    trainonce.silence(silenced, plan)
    small = small_model(name, plan)
    assert small.aux[1].in_channels < silenced.aux[1].in_channels
    assert (
        relative_difference(output_tensors(silenced.train(), example), output_tensors(small.train(), example))
        <= TOLERANCE
    )
