"""A cut keeps every object alive, and all that hangs on it: gradients, optimizer state, hooks, modes."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import trainonce
from graphs import GRAPHS
from graphs.necks import ConvNormRelu
from graphs.subjects import (
    call,
    fresh,
    inspected,
    output_tensors,
    redraw,
    redraw_statistics,
    relative_difference,
    snapshot,
)

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "nesterov": lambda parameters: torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.01),
    "adamax": lambda parameters: torch.optim.Adamax(parameters, lr=0.01),
}

every_optimizer = pytest.mark.parametrize("make_optimizer", list(OPTIMIZERS.values()), ids=list(OPTIMIZERS))

SIZED = [
    "residual_downsample",
    "conv_grouped_residual",
    "conv_depthwise",
    "conv_depthwise_multiplier",
    "conv_transposed_grouped",
    "norm_group_residual",
    "norm_group_per_channel",
    "norm_instance_affine",
    "norm_prelu_per_channel",
    "attention_unbind",
    "attention_pre_norm_block",
    "heads_grouped_option",
    "embedding_tied",
    "embedding_bag",
    "recurrent_lstm",
    "concat_unet",
]


class Chain(nn.Module):
    """Ordinary layers whose silent channels get no gradient: batch norm, then ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ConvNormRelu(3, 12)
        self.depthwise = ConvNormRelu(12, 12, groups=12)
        self.second = ConvNormRelu(12, 10)
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.depthwise(self.first(x)))
        return self.head(self.dropout(x.mean((2, 3))))


def example() -> Tensor:
    return torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def chain() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Chain().double()
    redraw(model)
    redraw_statistics(model, example())
    return model


def half_plan(model: nn.Module, x: Tensor | None = None, *, seed: int = 0) -> trainonce.Plan:
    return trainonce.Plan.random(trainonce.inspect(model, example() if x is None else x), keep=0.5, seed=seed)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        x = torch.randn(8, 3, 6, 6, generator=generator, dtype=torch.double)
        target = torch.randint(4, (8,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()


def narrowed(tensor: Tensor, plan: trainonce.Plan, name: str) -> Tensor:
    """What the plan leaves of a tensor of that name."""
    for axis_cut in plan.cuts:
        if axis_cut.tensor == name:
            tensor = tensor.index_select(axis_cut.axis, torch.tensor(axis_cut.kept))
    return tensor


def states_equal(left: nn.Module, right: nn.Module) -> bool:
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


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


def test_gradients_are_cut_too():
    model, plan = chain(), half_plan(chain())
    model(example()).square().sum().backward()
    before = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    trainonce.cut(model, plan)
    for name, parameter in model.named_parameters():
        assert parameter.grad.shape == parameter.shape
        assert torch.equal(parameter.grad, narrowed(before[name], plan, name))


@every_optimizer
def test_optimizer_state_is_cut_too(make_optimizer: Callable):
    model, plan = chain(), half_plan(chain())
    optimizer = make_optimizer(model.parameters())
    train(model, optimizer, 2, seed=1)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    before = {names[id(parameter)]: copy.deepcopy(state) for parameter, state in optimizer.state.items()}
    trainonce.cut(model, plan, optimizer=optimizer)
    after = {names[id(parameter)]: state for parameter, state in optimizer.state.items()}
    assert before.keys() == after.keys()
    for name, state in before.items():
        assert state.keys() == after[name].keys()
        for key, entry in state.items():
            if isinstance(entry, Tensor) and entry.shape == shapes[name]:
                assert torch.equal(after[name][key], narrowed(entry, plan, name))
            else:
                assert after[name][key] == entry


@every_optimizer
def test_cutting_early_or_late_gives_the_same_training(make_optimizer: Callable):
    plan = half_plan(chain())
    models = []
    for cut_early in (True, False):
        model = trainonce.silence(chain(), plan)
        optimizer = make_optimizer(model.parameters())
        train(model, optimizer, 3, seed=1)
        if cut_early:
            trainonce.cut(model, plan, optimizer=optimizer)
        train(model, optimizer, 3, seed=2)
        if not cut_early:
            trainonce.cut(model, plan)
        models.append(model)
    early, late = (dict(model.state_dict()) for model in models)
    start = trainonce.cut(chain(), plan).state_dict()
    assert early.keys() == late.keys()
    for name, tensor in early.items():
        assert torch.allclose(tensor.double(), late[name].double(), rtol=1e-9, atol=1e-12), name
    assert not torch.equal(early["first.0.weight"], start["first.0.weight"])


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda parameters: torch.optim.Adafactor(parameters),
        lambda parameters: torch.optim.ASGD(parameters),
        lambda parameters: torch.optim.RAdam(parameters),
        lambda parameters: torch.optim.Rprop(parameters),
        lambda parameters: torch.optim.Adadelta(parameters),
    ],
    ids=["adafactor", "asgd", "radam", "rprop", "adadelta"],
)
def test_other_optimizers_go_on(make_optimizer: Callable):
    model, plan = chain(), half_plan(chain())
    optimizer = make_optimizer(model.parameters())
    train(model, optimizer, 2, seed=1)
    trainonce.cut(model, plan, optimizer=optimizer)
    train(model, optimizer, 2, seed=2)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def test_parameter_groups_stay_as_they_are():
    model, plan = chain(), half_plan(chain())
    groups = [
        {"params": model.first.parameters(), "lr": 0.1},
        {"params": model.head.parameters(), "weight_decay": 0.5},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    train(model, optimizer, 1, seed=1)
    before = [
        {key: [id(p) for p in value] if key == "params" else value for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    trainonce.cut(model, plan, optimizer=optimizer)
    after = [
        {key: [id(p) for p in value] if key == "params" else value for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    assert before == after
    train(model, optimizer, 1, seed=2)


def test_optimizer_state_can_be_saved_and_loaded_after_the_cut():
    models = [trainonce.cut(chain(), half_plan(chain())) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    train(models[0], optimizers[0], 2, seed=1)
    models[1].load_state_dict(models[0].state_dict())
    # Loading shares the tensors of a state that is already of the right type.
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, 2, seed=2)
    assert states_equal(*models)


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


def test_a_plan_survives_json():
    plan = half_plan(chain())
    again = trainonce.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert states_equal(trainonce.cut(chain(), again), trainonce.cut(chain(), plan))


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_every_plan_survives_json(name: str):
    plan = trainonce.Plan.random(inspected(name).partition, keep=0.5)
    assert trainonce.Plan.from_json(plan.to_json()) == plan


def test_equal_seeds_give_equal_plans():
    partition = trainonce.inspect(chain(), example())
    assert trainonce.Plan.random(partition, keep=0.5, seed=3) == trainonce.Plan.random(
        partition, keep=0.5, seed=3
    )
    assert trainonce.Plan.random(partition, keep=0.5, seed=3) != trainonce.Plan.random(
        partition, keep=0.5, seed=4
    )


def test_a_plan_that_keeps_all_changes_nothing():
    model = chain()
    trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, example()), keep=1.0))
    assert states_equal(model, chain())


def check_sizes(module: nn.Module) -> None:
    """What a module of torch says about itself is what its weights are."""
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        assert module.weight.shape[:2] == (module.in_channels, module.out_channels // module.groups)
        assert module.out_channels % module.groups == 0
    elif isinstance(module, nn.modules.conv._ConvNd):
        assert module.weight.shape[:2] == (module.out_channels, module.in_channels // module.groups)
        assert module.in_channels % module.groups == 0
        assert module.out_channels % module.groups == 0
    elif isinstance(module, nn.Linear):
        assert module.weight.shape == (module.out_features, module.in_features)
    elif isinstance(module, nn.modules.batchnorm._NormBase) and module.affine:
        assert module.weight.shape == (module.num_features,)
    elif isinstance(module, nn.GroupNorm):
        assert module.weight.shape == (module.num_channels,)
        assert module.num_channels % module.num_groups == 0
    elif isinstance(module, nn.LayerNorm):
        assert module.weight.shape == tuple(module.normalized_shape)
    elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        assert module.weight.shape == (module.num_embeddings, module.embedding_dim)
    elif isinstance(module, nn.PReLU):
        assert module.weight.shape == (module.num_parameters,)
    elif isinstance(module, nn.LSTM):
        assert module.weight_ih_l0.shape == (4 * module.hidden_size, module.input_size)


@pytest.mark.parametrize("name", SIZED)
def test_modules_say_their_true_sizes(name: str):
    model, _ = fresh(name)
    trainonce.cut(model, trainonce.Plan.random(inspected(name).partition, keep=0.5))
    for module in model.modules():
        check_sizes(module)


def test_depthwise_groups_follow_their_channels():
    model = trainonce.cut(chain(), half_plan(chain()))
    conv = model.depthwise[0]
    assert conv.groups == conv.in_channels == conv.out_channels == 6
    assert model.second[1].num_features == model.head.in_features == 5


def test_number_of_heads_follows():
    model, _ = fresh("attention_unbind")
    attention = model[1]
    plan = trainonce.Plan.random(inspected("attention_unbind").partition, keep=0.5)
    trainonce.cut(model, plan)
    assert (attention.num_heads, attention.head_dim) == (2, 4)
    assert attention.qkv.out_features == 24


def test_group_norm_loses_whole_groups():
    model, _ = fresh("norm_group_per_channel")
    trainonce.cut(model, trainonce.Plan.random(inspected("norm_group_per_channel").partition, keep=0.5))
    norm = next(module for module in model.modules() if isinstance(module, nn.GroupNorm))
    assert norm.num_groups == norm.num_channels == 5


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
