"""A small model is an ordinary one: pickled, it opens where trainonce is not installed."""

from __future__ import annotations

import copy
import io
import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainonce
from graphs import GRAPHS
from graphs.subjects import fresh, inspected, output_tensors
from support.elsewhere import run_without_trainonce
from trainonce.surgery.inspection import shrink
from trainonce.surgery.norms import fold_norms
from trainonce.surgery.slicing import PLANS, plans_of
from trainonce.zoo.sources import build

TESTS = Path(__file__).parents[1]

KINDS = {
    "convolutions": "residual_downsample",
    "groups": "conv_grouped_residual",
    "depthwise": "conv_depthwise_multiplier",
    "LSTM": "recurrent_lstm",
    "heads": "attention_split_sizes",
    "blocks": "attention_pre_norm_block",
}

READER = """
import torch

for file in sys.argv[1:]:
    saved = torch.load(file, weights_only=False)
    saved["model"].eval()
    inputs = saved["inputs"]
    with torch.no_grad():
        found = saved["model"](**inputs) if isinstance(inputs, dict) else saved["model"](*inputs)
    found = getattr(found, "logits", found)
    found = found[0] if isinstance(found, tuple) else found
    assert torch.equal(found, saved["outputs"]), file
    torch.save(saved, file)
    assert torch.load(file, weights_only=False).keys() == saved.keys()
print("all equal")
"""

NORMS = ("norm_stream", "norm_response_hidden")
"""Nets whose norms scale their weights while they are trained."""


def modules_in(content: bytes) -> set[str]:
    """Every module that a pickle imports from."""
    found: set[str] = set()
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "GLOBAL":
            found.add(str(argument).split(" ")[0])
        elif opcode.name == "STACK_GLOBAL":
            found.update(texts[-2:-1])
        elif isinstance(argument, str):
            texts.append(argument)
    return found


def pickle_of(model: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save(model, file)
    with zipfile.ZipFile(file) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def cut_one(name: str) -> tuple[nn.Module, Any]:
    model, example = fresh(name)
    trainonce.cut(model, trainonce.Plan.random(inspected(name).partition, keep=0.5))
    return model, example


ONE_OF_EACH = {name.partition("_")[0]: name for name in GRAPHS if GRAPHS[name].expect_cut}


@pytest.mark.parametrize("name", sorted({*ONE_OF_EACH.values(), *KINDS.values()}))
def test_no_pickle_of_a_cut_model_names_a_class_of_ours(name: str):
    model, _ = cut_one(name)
    try:
        content = pickle_of(model)
    except (AttributeError, RuntimeError, TypeError, pickle.PicklingError):
        pytest.skip("this net can't be pickled, cut or not")
    assert plans_of(model)
    assert not [module for module in modules_in(content) if module.partition(".")[0] == "trainonce"]


def test_a_finished_run_leaves_nothing_of_ours_in_the_model():
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    keys = {name: set(vars(module)) for name, module in model.named_modules()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=torch.zeros(2, 6),
        keep_flops=0.5,
        total_steps=30,
        policy=trainonce.policies.FilterNorm(),
        schedule=trainonce.Schedule(search_from=2, shrink_from=4, settle_from=10, update_every=1),
    )
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
        pruner.step()
    small = pruner.finish()
    assert {name: set(vars(module)) - keys[name] for name, module in small.named_modules()} == {
        name: {PLANS} if not name else set() for name in keys
    }
    assert not {module for module in modules_in(pickle_of(small)) if module.startswith("trainonce")}


def in_training(name: str) -> tuple[nn.Module, Any]:
    """A net as a pruner leaves it, and an example."""
    model, example = fresh(name)
    shrink(model, trainonce.Plan.random(inspected(name).partition, keep=0.5))
    assert any(module._forward_pre_hooks for module in model.modules())
    return model, example


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_a_pickle_are_still_those_that_were_scaled(name: str):
    model, example = in_training(name)
    assert not {module for module in modules_in(pickle_of(model)) if module.startswith("trainonce")}
    before = output_tensors(model, example)[0]
    opened = copy.deepcopy(pickle.loads(pickle.dumps(model)))
    assert torch.equal(output_tensors(opened, example)[0], before)
    once, twice = (trainonce.inspect(net, example) for net in (model, opened))
    for net, partition in ((model, once), (opened, twice)):
        shrink(net, trainonce.Plan.random(partition, keep=0.5))
    assert torch.equal(output_tensors(opened, example)[0], output_tensors(model, example)[0])
    assert fold_norms(opened)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in opened.modules())
    assert torch.equal(output_tensors(opened, example)[0], output_tensors(model, example)[0])


def test_small_models_open_where_trainonce_cant_be_imported(tmp_path: Path):
    files = []
    for kind, name in [*KINDS.items(), *zip(NORMS, NORMS, strict=True)]:
        model, example = in_training(name) if name in NORMS else cut_one(name)
        inputs = example if isinstance(example, tuple | dict) else (example,)
        outputs = output_tensors(model, example)[0]
        files.append(tmp_path / f"{kind}.pt")
        torch.save({"model": model, "inputs": inputs, "outputs": outputs}, files[-1])
    said = run_without_trainonce(READER, *map(str, files), python_path=str(TESTS))
    assert said.strip() == "all equal"


@pytest.mark.parametrize(
    "source", ["transformers:SwinModel", "transformers:LlamaForCausalLM", "timm:test_vit"]
)
def test_models_of_libraries_stay_theirs(source: str):
    pytest.importorskip(source.partition(":")[0])
    found = build(source)
    trainonce.cut(found.model, trainonce.Plan.random(trainonce.inspect(found.model, found.example), keep=0.5))
    assert plans_of(found.model)
    assert not {module for module in modules_in(pickle_of(found.model)) if module.startswith("trainonce")}


def test_a_pickle_of_an_earlier_version_still_knows_its_plans():
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    plan = trainonce.Plan.random(trainonce.inspect(model, torch.zeros(2, 6)), keep=0.5)
    trainonce.cut(model, plan)
    vars(model)[PLANS] = (plan,)
    assert plans_of(model) == (plan,)
