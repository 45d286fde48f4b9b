"""Attention with any number of heads, LayerNorms that keep their divisor: the same modules and results."""

from __future__ import annotations

import copy
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from graphs.subjects import call, fresh, inspected, output_tensors, redraw, relative_difference
from support.elsewhere import run_without_trainonce
from trainonce.execution.attention import are_heads_free
from trainonce.execution.wide_norm import kept_divisor
from trainonce.pruning.restored import widened
from trainonce.structure.succession import plan_after
from trainonce.surgery.inspection import shrink
from trainonce.surgery.slicing import plans_of

NETS = (
    "swap_attention",
    "swap_attention_cross",
    "swap_attention_more_keys",
    "swap_norm_encoder",
    "swap_norm_stream",
    "swap_norm_images",
)

every_net = pytest.mark.parametrize("name", NETS)


def plan_for(name: str, seed: int = 0) -> trainonce.Plan:
    return trainonce.Plan.random(inspected(name).partition, keep=0.5, seed=seed)


def cut_one(name: str) -> tuple[nn.Module, Any]:
    model, example = fresh(name)
    return trainonce.cut(model, plan_for(name)), example


@every_net
def test_a_cut_changes_no_class_and_no_name(name: str):
    dense, (small, _) = fresh(name)[0], cut_one(name)
    assert [type(module) for module in small.modules()] == [type(module) for module in dense.modules()]
    assert small.state_dict().keys() == dense.state_dict().keys()
    assert [where for where, _ in small.named_modules()] == [where for where, _ in dense.named_modules()]
    assert any(are_heads_free(module) or kept_divisor(module) for module in small.modules())


@every_net
def test_plans_survive_json(name: str):
    plan = plan_for(name)
    assert plan.swaps
    assert trainonce.Plan.from_json(plan.to_json()) == plan


@every_net
def test_training_takes_the_same_steps_with_and_without_the_cut(name: str):
    plan, example = plan_for(name), fresh(name)[1]
    whole, small = (fresh(name)[0].train() for _ in range(2))
    trainonce.silence(whole, plan)
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01)
        for model in (whole, small)
    ]
    shrink(small, plan, optimizer=optimizers[1])
    for _ in range(4):
        for model, optimizer in zip((whole, small), optimizers, strict=True):
            optimizer.zero_grad()
            call(model, example).square().mean().backward()
            optimizer.step()
        trainonce.silence(whole, plan)
        assert relative_difference(output_tensors(whole, example), output_tensors(small, example)) < 1e-9


@every_net
def test_two_cuts_are_one(name: str):
    partition, example = inspected(name).partition, fresh(name)[1]
    first, second = ({}, {})
    for group in partition.prunable_groups:
        once = torch.ones(group.num_channels)
        once[0] = 0
        twice = once.clone()
        twice[1:-1:2] = 0
        first[group.name], second[group.name] = once, twice
    plans = [trainonce.Plan.from_masks(partition, masks) for masks in (first, second)]
    at_once, in_turn = fresh(name)[0], fresh(name)[0]
    trainonce.cut(at_once, plans[1])
    shrink(in_turn, plans[0].without_example())
    shrink(in_turn, plan_after(*plans).without_example())
    assert relative_difference(output_tensors(at_once, example), output_tensors(in_turn, example)) == 0


@every_net
def test_widened_again_it_is_torchs_module(name: str):
    small, example = cut_one(name)
    dense = widened(small, plans_of(small))
    assert not any("forward" in vars(module) for module in dense.modules())
    assert relative_difference(output_tensors(small, example), output_tensors(dense, example)) < 1e-9
    kinds = [module for module in dense.modules() if isinstance(module, nn.MultiheadAttention)]
    assert all(module._qkv_same_embed_dim == (module.in_proj_weight is not None) for module in kinds)


@every_net
def test_a_failed_cut_leaves_modules_alone(name: str):
    model, example = fresh(name)
    before, known = output_tensors(model, example), [set(vars(module)) for module in model.modules()]

    def refuse(module: nn.Module, args: Any, output: Any) -> None:
        if any("forward" in vars(part) for part in model.modules()):
            raise RuntimeError("too small")

    handle = list(model.children())[-1].register_forward_hook(refuse)
    with pytest.raises(trainonce.PlanError, match="too small"):
        trainonce.cut(model, plan_for(name))
    handle.remove()
    assert [set(vars(module)) for module in model.modules()] == known
    assert relative_difference(before, output_tensors(model, example)) == 0


@every_net
def test_saved_equals_loaded(name: str, tmp_path: Any):
    small, example = cut_one(name)
    trainonce.save(small, tmp_path / "small")
    dense = fresh(name)[0]
    redraw(dense, seed=5)
    again = trainonce.load(tmp_path / "small", into=dense)
    assert relative_difference(output_tensors(small, example), output_tensors(again, example)) == 0


@every_net
def test_copies_and_pickles_are_cut_further_alike(name: str):
    small, example = cut_one(name)
    file = io.BytesIO()
    torch.save(small, file)
    file.seek(0)
    streams = name.startswith("swap_norm")
    cuts = []
    for model in (small, copy.deepcopy(small), torch.load(file, weights_only=False)):
        partition = trainonce.inspect(model, example, streams=streams)
        assert partition.prunable_groups
        trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5))
        cuts.append(output_tensors(model, example))
    assert relative_difference(cuts[0], cuts[1]) == relative_difference(cuts[0], cuts[2]) == 0


TESTS = Path(__file__).parents[1]

READER = """
import torch

for file in sys.argv[1:]:
    model, example, outputs = torch.load(file, weights_only=False)
    with torch.no_grad():
        found = model(example)
    assert torch.equal(found, outputs), file
    found = model.train()(example)
    found.sum().backward()
    torch.save((model, example, outputs), file)
    torch.load(file, weights_only=False)
print("all equal")
"""


def test_pickles_open_where_trainonce_cant_be_imported(tmp_path: Any):
    files = []
    for name in ("swap_attention", "swap_attention_more_keys", "swap_norm_encoder", "swap_norm_stream"):
        small, example = cut_one(name)
        files.append(str(tmp_path / f"{name}.pt"))
        torch.save((small, example, output_tensors(small, example)[0]), files[-1])
    assert run_without_trainonce(READER, *files, python_path=str(TESTS)).strip() == "all equal"


@pytest.mark.parametrize("field", range(4))
def test_a_forged_plan_is_refused(field: int):
    data = plan_for("swap_norm_encoder").to_data()
    data["swaps"][-1][field] = ["0", "attention", 1, ["nothing"]][field]
    model = fresh("swap_norm_encoder")[0]
    with pytest.raises(trainonce.PlanError):
        trainonce.cut(model, trainonce.Plan.from_data(data))
    assert not any("forward" in vars(module) for module in model.modules())


def test_an_unknown_kind_of_swap_is_damage():
    data = plan_for("swap_attention").to_data()
    data["swaps"][0][1] = "convolution"
    with pytest.raises(trainonce.PlanError, match="damaged"):
        trainonce.Plan.from_data(data)


def test_without_asking_streams_are_kept_and_the_reason_says_so():
    partition = trainonce.inspect(*fresh("swap_norm_stream"))
    assert any("streams=True" in (group.kept_because or "") for group in partition.groups)


@pytest.mark.parametrize("streams", [None, 1, "yes"])
def test_streams_is_a_flag(streams: Any):
    with pytest.raises(trainonce.ModelError, match="streams must be True or False"):
        trainonce.inspect(*fresh("swap_norm_stream"), streams=streams)


def test_attention_whose_forward_is_not_torchs_is_left_to_itself():
    model, example = fresh("swap_attention")
    attention = next(module for module in model.modules() if isinstance(module, nn.MultiheadAttention))
    own = attention.forward
    attention.forward = lambda *args, **kwargs: own(*args, **kwargs)
    groups = {group.name for group in trainonce.inspect(model, example).prunable_groups}
    assert not any(name.endswith("1.attention") for name in groups)


class PaddedEncoder(nn.Module):
    """An encoder that takes sequences of several lengths apart when it need not learn."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=24, batch_first=True)
        self.start = nn.Linear(6, 16)
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        gone = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
        return self.head(self.layers(self.start(x), src_key_padding_mask=gone))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padded_sequences_are_what_they_were_on_the_fast_path_and_off_it():
    model = PaddedEncoder().double().eval()
    redraw(model)
    example = (torch.randn(2, 9, 6, dtype=torch.double), torch.tensor([9, 5]))
    partition = trainonce.inspect(model, example, streams=True)
    assert partition.prunable_macs / partition.macs > 0.9
    plan = trainonce.Plan.random(partition, keep=0.5)
    trainonce.silence(model, plan)
    small = trainonce.cut(copy.deepcopy(model), plan)
    for learns, lengths in itertools.product((False, True), ([9, 5], [3, 9], [9, 9])):
        inputs = (example[0], torch.tensor(lengths))
        with torch.set_grad_enabled(learns):
            found = [part(*inputs).detach() for part in (model, small)]
            assert relative_difference(found[:1], found[1:]) < 1e-9


def test_small_models_compile_and_export():
    small, example = cut_one("swap_norm_encoder")
    with torch.no_grad():
        wanted = small(example)
        exported = torch.export.export(small, (example,)).module()(example)
        compiled = torch.compile(small, backend="eager", fullgraph=True)(example)
    assert relative_difference([wanted], [exported]) < 1e-12
    assert relative_difference([wanted], [compiled]) < 1e-12
