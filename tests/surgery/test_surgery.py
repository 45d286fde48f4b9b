"""A cut keeps every object alive, and all that hangs on it: gradients, optimizer state, hooks, modes."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import trainonce
from graphs.subjects import (
    call,
    fresh,
    inspected,
    output_tensors,
    relative_difference,
    snapshot,
)
from support.chains import chain, example, half_plan, narrowed, states_equal, train


def test_every_object_stays_itself():
    model = chain()
    plan = half_plan(model)
    parameters = {name: id(parameter) for name, parameter in model.named_parameters()}
    modules = {name: (id(module), type(module)) for name, module in model.named_modules()}
    assert trainonce.cut(model, plan) is model
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == parameters
    assert {name: (id(module), type(module)) for name, module in model.named_modules()} == modules


def test_what_stays_keeps_its_values():
    model, plan = chain(), half_plan(chain())
    before = copy.deepcopy(model.state_dict())
    after = trainonce.cut(model, plan).state_dict()
    assert list(before) == list(after)
    assert any(before[name].shape != after[name].shape for name in before)
    for name, tensor in before.items():
        assert torch.equal(narrowed(tensor, plan, name), after[name])


def test_silent_and_loud_models_become_the_same():
    plan = half_plan(chain())
    silent = trainonce.cut(trainonce.silence(chain(), plan), plan)
    assert states_equal(silent, trainonce.cut(chain(), plan))


@pytest.mark.parametrize("is_training", [True, False])
def test_modes_and_random_state_are_left_alone(is_training: bool):
    model = chain().train(is_training)
    model.second.eval()
    modes = [module.training for module in model.modules()]
    random.seed(0)
    torch.manual_seed(0)
    states = torch.get_rng_state(), random.getstate()
    plan = half_plan(model)
    trainonce.silence(model, plan)
    trainonce.cut(model, plan)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


@pytest.mark.parametrize("is_training", [True, False])
def test_running_statistics_are_not_moved_by_the_proof(is_training: bool):
    model = chain().train(is_training)
    plan = half_plan(model)
    before = copy.deepcopy(dict(model.named_buffers()))
    trainonce.cut(model, plan)
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, narrowed(before[name], plan, name)), name


def test_averaged_copy_is_cut_by_the_same_plan():
    model, plan = chain(), half_plan(chain())
    average = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    train(model, optimizer, 2, seed=1)
    average.update_parameters(model)
    trainonce.cut(model, plan, optimizer=optimizer)
    trainonce.cut(average.module, plan)
    train(model, optimizer, 1, seed=2)
    average.update_parameters(model)
    shapes = [parameter.shape for parameter in model.parameters()]
    assert [parameter.shape for parameter in average.module.parameters()] == shapes
    assert average(example()).shape == (4, 4)


def test_a_model_can_be_cut_twice():
    model = chain().eval()
    trainonce.cut(model, half_plan(model))
    plan = half_plan(model, seed=1)
    before = output_tensors(trainonce.silence(copy.deepcopy(model), plan), example())
    num_before = sum(parameter.numel() for parameter in model.parameters())
    trainonce.cut(model, plan)
    assert sum(parameter.numel() for parameter in model.parameters()) < num_before
    assert relative_difference(before, output_tensors(model, example())) <= 1e-9


def test_tied_parameters_stay_tied():
    model, _ = fresh("embedding_tied")
    trainonce.cut(model, trainonce.Plan.random(inspected("embedding_tied").partition, keep=0.5))
    assert model.head.weight is model.embed.weight
    assert model.embed.weight.shape == (11, 8)


def test_hooks_survive():
    model, plan = chain(), half_plan(chain())
    calls = []
    model.second.register_forward_hook(lambda module, args, output: calls.append(output.shape[1]))
    model.first[0].weight.register_hook(lambda grad: calls.append(tuple(grad.shape)))
    trainonce.cut(model, plan)
    calls.clear()
    model(example()).sum().backward()
    assert calls == [5, (6, 3, 3, 3)]


def test_hooks_on_accumulated_gradients_survive():
    model, plan = chain(), half_plan(chain())
    calls = []
    model.first[0].weight.register_post_accumulate_grad_hook(
        lambda parameter: calls.append(parameter.grad.shape)
    )
    model(example()).sum().backward()
    model.zero_grad()
    trainonce.cut(model, plan)
    calls.clear()
    model(example()).sum().backward()
    assert calls == [(6, 3, 3, 3)]


def test_frozen_parameters_stay_frozen():
    model, _ = fresh("conv_frozen")
    before = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    trainonce.cut(model, trainonce.Plan.random(inspected("conv_frozen").partition, keep=0.5))
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == before
    assert not all(before.values())


def test_state_dict_of_the_small_model_loads():
    plan = half_plan(chain())
    trained, other = trainonce.cut(chain(), plan), trainonce.cut(chain(), plan)
    train(trained, torch.optim.SGD(trained.parameters(), lr=0.1), 2, seed=1)
    other.load_state_dict(copy.deepcopy(trained.state_dict()))
    assert torch.equal(other.eval()(example()), trained.eval()(example()))


def test_small_model_can_be_copied():
    model = trainonce.cut(chain(), half_plan(chain())).eval()
    assert torch.equal(copy.deepcopy(model)(example()), model(example()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_every_precision_can_be_cut(dtype: torch.dtype):
    model, x = chain().to(dtype).eval(), example().to(dtype)
    plan = half_plan(model, x)
    assert plan.kept == half_plan(chain()).kept
    before = output_tensors(trainonce.silence(copy.deepcopy(model), plan), x)
    trainonce.cut(model, plan)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    tolerance = {torch.float16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    assert relative_difference(before, output_tensors(model, x)) <= tolerance


def test_model_without_data_can_be_cut():
    model, x = chain().to("meta"), example().to("meta")
    plan = half_plan(model, x)
    assert plan.kept == half_plan(chain()).kept
    trainonce.cut(model, plan)
    small = trainonce.cut(chain(), half_plan(chain()))
    assert [parameter.shape for parameter in model.parameters()] == [
        parameter.shape for parameter in small.parameters()
    ]
    assert all(parameter.is_meta for parameter in model.parameters())
    assert call(model, x).shape == (4, 4)


def test_channels_last_weights_stay_channels_last():
    model = chain().to(memory_format=torch.channels_last)
    weight = trainonce.cut(model, half_plan(model)).second[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_failed_cut_changes_nothing():
    model = chain()
    plan = half_plan(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, 1, seed=1)

    def refuse_small(module: nn.Module, args: tuple[Tensor]) -> None:
        if args[0].shape[1] != 12:
            raise RuntimeError("this layer wants 12 channels")

    model.second.register_forward_pre_hook(refuse_small)
    before = snapshot(model)
    momenta = copy.deepcopy(optimizer.state_dict()["state"])
    with pytest.raises(trainonce.PlanError, match="wants 12 channels"):
        trainonce.cut(model, plan, optimizer=optimizer)
    assert snapshot(model) == before
    for number, state in optimizer.state_dict()["state"].items():
        assert torch.equal(state["momentum_buffer"], momenta[number]["momentum_buffer"])


class Sensitive(nn.Module):
    """A model whose last step turns the rounding of float32, but not that of float64, into another output."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 512)
        self.head = nn.Linear(512, 8)

    def forward(self, data: Tensor) -> Tensor:
        return torch.sin(1e5 * self.head(self.hidden(data).relu()))


def test_float64_decides_where_rounding_changes_the_output():
    torch.manual_seed(0)
    model, example = Sensitive().eval(), torch.randn(4, 64)
    plan = trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5)
    trainonce.cut(model, plan)
    assert model.hidden.out_features == 256
    assert model.hidden.weight.dtype is torch.float32


def test_a_wrong_cut_is_refused_in_any_precision():
    torch.manual_seed(0)
    model, example = Sensitive().eval(), torch.randn(4, 64)
    plan = trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5)
    # Nothing is silenced, so that the dropped channels still count before the cut.
    loud = replace(plan, cuts=tuple(replace(cut, silenced=False) for cut in plan.cuts))
    weights = model.hidden.weight.clone()
    with pytest.raises(trainonce.PlanError, match="differs"):
        trainonce.cut(model, loud)
    assert torch.equal(model.hidden.weight, weights)
