"""Channels under a norm's mean go, and the norm computes what it did; training does not notice the cut."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs.subjects import call, fresh, inspected, output_tensors, redraw, relative_difference
from trainonce.structure.succession import plan_after
from trainonce.surgery.inspection import shrink
from trainonce.surgery.norms import fold_norms

NETS = ("norm_stream", "norm_response_hidden")

every_net = pytest.mark.parametrize("name", NETS)


def plan_for(name: str, seed: int = 0) -> trainonce.Plan:
    return trainonce.Plan.random(inspected(name).partition, keep=0.4, seed=seed)


@every_net
def test_nothing_is_kept_for_a_norm(name: str):
    kept = {group.kept_because for group in inspected(name).partition.groups}
    assert not any("at once" in reason for reason in kept if reason)
    assert plan_for(name).norms


@every_net
def test_a_cut_model_has_plain_norms(name: str):
    model, example = fresh(name)
    kinds = [type(module) for module in model.modules()]
    trainonce.cut(model, plan_for(name))
    assert [type(module) for module in model.modules()] == kinds
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert output_tensors(copy.deepcopy(model), example)[0].isfinite().all()


@every_net
def test_training_takes_the_same_steps_with_and_without_the_cut(name: str):
    plan = plan_for(name)
    whole, small = (fresh(name)[0].train() for _ in range(2))
    example = fresh(name)[1]
    trainonce.silence(whole, plan)
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)
        for model in (whole, small)
    ]
    shrink(small, plan, optimizer=optimizers[1])
    for step in range(4):
        for model, optimizer in zip((whole, small), optimizers, strict=True):
            optimizer.zero_grad()
            call(model, example).square().mean().backward()
            optimizer.step()
        trainonce.silence(whole, plan)
        assert relative_difference(output_tensors(whole, example), output_tensors(small, example)) < 1e-9, (
            step
        )
    kept = {(cut.tensor, cut.axis): torch.tensor(cut.kept) for cut in plan.cuts}

    wide = dict(whole.named_parameters())
    for parameter_name, parameter in small.named_parameters():
        expected = wide[parameter_name].data
        for axis in range(expected.dim()):
            if (parameter_name, axis) in kept:
                expected = expected.index_select(axis, kept[parameter_name, axis])
        assert torch.allclose(parameter, expected, rtol=1e-9, atol=1e-12), parameter_name


@every_net
def test_folding_changes_nothing_but_the_form(name: str):
    model, example = fresh(name)
    shrink(model, plan_for(name))
    before = output_tensors(model, example)
    assert fold_norms(model)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    assert relative_difference(before, output_tensors(model, example)) < 1e-12
    assert not fold_norms(model)


@every_net
def test_two_cuts_are_one(name: str):
    partition = inspected(name).partition
    first, second = ({}, {})
    for group in partition.prunable_groups:
        once = torch.ones(group.num_channels)
        once[0] = 0
        twice = once.clone()
        twice[1] = 0
        first[group.name], second[group.name] = once, twice
    plans = [trainonce.Plan.from_masks(partition, masks) for masks in (first, second)]
    after = plan_after(*plans)
    at_once, in_turn = fresh(name)[0], fresh(name)[0]
    example = fresh(name)[1]
    trainonce.cut(at_once, plans[1])
    shrink(in_turn, plans[0].without_example())
    shrink(in_turn, after.without_example())
    assert relative_difference(output_tensors(at_once, example), output_tensors(in_turn, example)) < 1e-12
    fold_norms(in_turn)
    for one, other in zip(at_once.parameters(), in_turn.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-12)


@every_net
def test_a_failed_cut_leaves_norms_alone(name: str):
    model, example = fresh(name)
    before = output_tensors(model, example)

    def refuse(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        if any(parameter.numel() < 8 for parameter in module.parameters()):
            raise RuntimeError("too small")

    last = list(model.children())[-2]
    last.register_forward_hook(refuse)
    with pytest.raises(trainonce.PlanError, match="too small"):
        trainonce.cut(model, plan_for(name))
    assert relative_difference(before, output_tensors(model, example)) == 0


def test_a_plan_that_scales_no_norm_of_the_model_is_refused():
    data = plan_for("norm_stream").to_data()
    data["norms"][0][5] = "other_eps"
    with pytest.raises(trainonce.PlanError, match="no such norm"):
        trainonce.cut(fresh("norm_stream")[0], trainonce.Plan.from_data(data))


@every_net
def test_saved_equals_loaded(name: str, tmp_path):
    example = fresh(name)[1]
    for number, way in enumerate((trainonce.cut, shrink)):
        model = way(fresh(name)[0], plan_for(name))
        trainonce.save(model, tmp_path / str(number))
        dense = fresh(name)[0]
        redraw(dense, seed=5)
        again = trainonce.load(tmp_path / str(number), into=dense)
        assert relative_difference(output_tensors(model, example), output_tensors(again, example)) == 0
