"""The pruner's path costs nothing: units zeroed at once and then cut are a plain `cut`, bit for bit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import trainonce
from support.digits import attached, batch, convolutional, same, train
from trainonce.pruning.policies import FilterNorm

STEPS, SETTLE = 60, 30


def pruned() -> tuple[nn.Module, trainonce.Pruner, int]:
    """A run that zeroes what goes in one step, and the step at which it cut."""
    model = convolutional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    pruner = attached(
        model,
        optimizer,
        STEPS,
        policy=FilterNorm(2),
        schedule=trainonce.Schedule(first_cut_from=SETTLE, settle_from=SETTLE),
        strength=trainonce.Strength(zero_within=1e-9),
    )
    cuts: list[int] = []
    train(
        model,
        optimizer,
        pruner,
        steps=range(STEPS),
        after=lambda step, cut: cuts.append(step) if cut else None,
    )
    assert len(cuts) == 1
    return pruner.finish(), pruner, cuts[0]


def plainly_cut(plan: trainonce.Plan, at: int) -> nn.Module:
    """The same run without a pruner: the user cuts model and optimizer after that step."""
    model = convolutional().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    for step in range(STEPS):
        images, labels = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if step == at:
            trainonce.cut(model, plan, optimizer=optimizer)
    return model


def test_units_zeroed_at_once_are_a_plain_cut():
    small, pruner, at = pruned()
    assert pruner.plan is not None
    assert same(dict(plainly_cut(pruner.plan, at).state_dict()), dict(small.state_dict()))
    # A cut one step earlier is another run: the comparison can fail.
    assert not same(dict(plainly_cut(pruner.plan, at - 1).state_dict()), dict(small.state_dict()))
