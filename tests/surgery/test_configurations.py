"""Small Hugging Face models with equal widths load with a plain from_pretrained, bit for bit."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainonce
from trainonce.errors import PlanError
from trainonce.structure.families import with_families

transformers = pytest.importorskip("transformers", reason="needs transformers")

from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

WORDS = torch.arange(1, 9)[None]
DECODER: dict[str, Any] = dict(
    vocab_size=32,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
    pad_token_id=0,
)
ENCODER: dict[str, Any] = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
)


def llama() -> nn.Module:
    return LlamaForCausalLM(LlamaConfig(**DECODER))


def qwen3() -> nn.Module:
    return Qwen3ForCausalLM(Qwen3Config(**DECODER, head_dim=8))


def mixtral() -> nn.Module:
    return MixtralForCausalLM(MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2))


def bert() -> nn.Module:
    return BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=32, **ENCODER))


def vit() -> nn.Module:
    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **ENCODER))


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=4, n_positions=32))


def t5() -> nn.Module:
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=32, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
    )


FAMILIES = (llama, qwen3, mixtral, bert, vit, gpt2, t5)

every_family = pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)


def made(build: Callable[[], nn.Module]) -> tuple[Any, dict[str, Any]]:
    """A model with weights that hide nothing, and what it is called with."""
    torch.manual_seed(0)
    model = build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    if build is vit:
        return model, {"pixel_values": torch.randn(1, 3, 8, 8)}
    return model, {"input_ids": WORDS} | ({"decoder_input_ids": WORDS} if build is t5 else {})


def answers(model: Any, example: dict[str, Any]) -> list[torch.Tensor]:
    """The logits, and what the model goes on to say."""
    with torch.no_grad():
        found = [model(**example).logits]
        if model.can_generate():
            found.append(model.generate(WORDS, max_new_tokens=5, do_sample=False))
    return found


def in_own_memory(model: Any) -> Any:
    """The model with its weights copied: for rows of odd length in a file, kernels add in another order."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    return model


def are_equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(map(torch.equal, some, others))


@every_family
def test_a_uniform_model_loads_with_from_pretrained(build: Callable[[], nn.Module], tmp_path: Path):
    model, example = made(build)
    before = sum(parameter.numel() for parameter in model.parameters())
    trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5, uniform=True))
    assert sum(parameter.numel() for parameter in model.parameters()) < before
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    assert are_equal(answers(model, example), answers(loaded, example))


def test_it_loads_where_trainonce_is_not_imported(tmp_path: Path):
    model, example = made(llama)
    trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5, uniform=True))
    model.save_pretrained(tmp_path)
    torch.save(answers(model, example)[0], tmp_path / "logits.pt")
    words = (
        "import sys, torch; from transformers import LlamaForCausalLM as L\n"
        "model = L.from_pretrained(sys.argv[1]).eval(); wanted = torch.load(sys.argv[1] + '/logits.pt')\n"
        "with torch.no_grad(): found = model(torch.arange(1, 9)[None]).logits\n"
        "sys.exit(not torch.equal(found, wanted) or 'trainonce' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", words, str(tmp_path)], check=False).returncode == 0


def test_a_stream_takes_its_eps_into_the_configuration():
    model, example = made(llama)
    shared = model.config
    eps = shared.rms_norm_eps
    trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5, uniform=True))
    assert model.config.hidden_size == 16
    assert model.config.rms_norm_eps == pytest.approx(2 * eps)
    # Another model may hold the same object.
    assert (shared.hidden_size, shared.rms_norm_eps) == (32, eps)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (qwen3, r"^equal widths: Qwen3Config.rms_norm_eps is also the eps of [\w.]+q_norm, which must stay$"),
        (bert, r"^equal widths: [\w.]+scaling, a number that the model computes with, follows this size$"),
    ],
)
def test_what_a_configuration_cannot_say_is_kept_with_a_reason(build: Callable[[], nn.Module], words: str):
    model, example = made(build)
    partition = with_families(trainonce.inspect(model, example), True)
    assert any(re.match(words, group.kept_because or "") for group in partition.groups)


@pytest.mark.parametrize("keep", [0.2, 0.4, 0.6, 0.9])
def test_heads_always_divide_the_width_where_the_configuration_wants_it(keep: float):
    model, example = made(llama)
    plan = trainonce.Plan.random(trainonce.inspect(model, example), keep=keep, uniform=True)
    trainonce.cut(model, plan)
    model.config.validate()
    assert model.config.hidden_size % model.config.num_attention_heads == 0


def test_a_plan_without_uniform_leaves_the_configuration_alone():
    model, example = made(llama)
    config = copy.deepcopy(model.config)
    plan = trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5)
    trainonce.cut(model, plan)
    assert plan.settings == ()
    assert model.config == config


def test_a_plan_with_settings_survives_json_and_loads(tmp_path: Path):
    model, example = made(llama)
    plan = trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5, uniform=True)
    assert trainonce.Plan.from_json(plan.to_json()) == plan
    trainonce.cut(model, plan)
    trainonce.save(model, tmp_path / "small")
    loaded = trainonce.load(tmp_path / "small", into=made(llama)[0]).eval()
    assert loaded.config.hidden_size == 16
    assert are_equal(answers(model, example), answers(loaded, example))


def test_a_model_that_its_configuration_does_not_build_still_has_equal_widths():
    model, example = made(llama)
    model.model.layers[0].mlp = copy.deepcopy(model.model.layers[0].mlp)
    model.lm_head = nn.Sequential(nn.Linear(32, 20), nn.Linear(20, 32))
    partition = trainonce.inspect(model, example)
    plan = trainonce.Plan.random(partition, keep=0.5, uniform=True)
    assert plan.settings == ()
    assert len({len(plan.kept[f"model.layers.{layer}.mlp.gate_proj"]) for layer in (0, 1)}) == 1


def test_a_forged_setting_is_refused_and_nothing_changes():
    model, example = made(llama)
    plan = trainonce.Plan.random(trainonce.inspect(model, example), keep=0.5, uniform=True)
    data = plan.to_data()
    for forged in (
        ["hidden_size", 64, 16, ""],
        ["torch_dtype", None, None, "model.norm.variance_epsilon"],
        ["_x.y", None, 3, ""],
    ):
        config = copy.deepcopy(model.config)
        with pytest.raises(PlanError, match=r"^the plan expects [^\n]*$"):
            trainonce.cut(model, trainonce.Plan.from_data(data | {"settings": [forged]}))
        assert model.config == config


@pytest.mark.parametrize("build", [llama, bert], ids=["llama", "bert"])
@pytest.mark.parametrize("shrink", [True, False], ids=["shrink", "at the end"])
@pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")
def test_a_finished_run_saves_restores_and_resumes(
    build: Callable[[], nn.Module], shrink: bool, tmp_path: Path
):
    def attached() -> tuple[Any, torch.optim.Optimizer, trainonce.Pruner]:
        model = made(build)[0].train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        pruner = trainonce.attach(
            model,
            optimizer,
            example=example,
            total_steps=30,
            keep_flops=0.8,
            uniform=True,
            shrink=shrink,
            policy=trainonce.policies.FilterNorm(),
            schedule=trainonce.Schedule(search_from=2, settle_from=12, update_every=1),
        )
        return model, optimizer, pruner

    example = made(build)[1]
    model, optimizer, pruner = attached()
    for _ in range(30):
        model(**example).logits.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    small = pruner.finish().eval()
    assert not any(module._forward_pre_hooks for module in small.modules())
    small.save_pretrained(tmp_path)
    wanted = answers(small, example)
    assert are_equal(wanted, answers(in_own_memory(type(small).from_pretrained(tmp_path).eval()), example))

    state, weights = pruner.state_dict(), small.state_dict()
    restored = trainonce.restore(made(build)[0], state)
    restored.load_state_dict(weights)
    assert are_equal(wanted, answers(restored.eval(), example))

    again, _, resumed = attached()
    resumed.load_state_dict(state)
    again.load_state_dict(weights)
    assert are_equal(wanted, answers(resumed.finish().eval(), example))
    assert again.config.intermediate_size == small.config.intermediate_size
