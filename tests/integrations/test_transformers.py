"""The callback in the real `transformers.Trainer`, on tiny models."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import trainonce

pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")

from transformers import LlamaForCausalLM, Trainer

from integrations.hugging_face import (
    STEPS,
    TASKS,
    Kill,
    KilledError,
    llama,
    make_trainer,
    sentences,
)
from support.bits import digest
from support.ranks import run_two
from trainonce.errors import PrunerError
from trainonce.integrations.transformers import TrainOnceCallback, load

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")


def batch_of(task: str) -> dict[str, Any]:
    rows = TASKS[task][1](4)
    return {name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in rows[0]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One undisturbed run of each model."""
    runs = {}
    for task in TASKS:
        trainer, callback = make_trainer(tmp_path_factory.mktemp(task), task=task)
        trainer.train()
        trainer.save_model(f"{trainer.args.output_dir}/small")
        runs[task] = trainer, callback
    return runs


@pytest.mark.parametrize("task", list(TASKS))
def test_one_argument_gives_a_small_model(whole: dict[str, Any], task: str):
    trainer, callback = whole[task]
    assert trainer.model is callback.pruner.model
    before = trainonce.inspect(TASKS[task][0](), batch_of(task)).macs
    after = trainonce.inspect(trainer.model, batch_of(task)).macs
    assert 0.6 * before < after <= 0.7 * before
    assert len(callback.pruner.cuts) == 2
    assert callback.pruner.num_steps == trainer.state.global_step == STEPS, "once per optimizer step"
    assert not callback.pruner.is_attached


@pytest.mark.parametrize(
    ("task", "killed_at"),
    [("llama", 6), ("llama", 11), ("llama", 21), ("vit", 11)],
    ids=["llama before the cuts", "llama between", "llama after", "vit between"],
)
def test_a_killed_run_resumes_to_the_same_bits(
    whole: dict[str, Any], tmp_path: Path, task: str, killed_at: int
):
    trainer, _ = make_trainer(tmp_path, Kill(killed_at), task=task)
    with pytest.raises(KilledError):
        trainer.train()
    torch.manual_seed(killed_at)
    resumed, callback = make_trainer(tmp_path, task=task)
    resumed.train(resume_from_checkpoint=True)
    assert callback.pruner.num_steps == STEPS
    assert digest(resumed.model) == digest(whole[task][0].model)


def test_resuming_from_the_last_checkpoint_gives_its_model(whole: dict[str, Any], tmp_path: Path):
    trainer, _ = whole["llama"]
    resumed, _ = make_trainer(tmp_path)
    resumed.train(resume_from_checkpoint=f"{trainer.args.output_dir}/checkpoint-{STEPS}")
    assert digest(resumed.model) == digest(trainer.model)


@pytest.mark.parametrize(
    "cache",
    [{"use_cache": False}, {"cache_implementation": "dynamic"}, {"cache_implementation": "static"}],
    ids=lambda cache: str(next(iter(cache.values()))),
)
def test_the_small_model_generates_what_the_silenced_one_does(whole: dict[str, Any], cache: dict[str, Any]):
    dense = llama().double().eval()
    for weight in dense.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.3)
    plan = whole["llama"][1].pruner.plan
    said = [
        model.generate(
            torch.tensor([[1, 5, 9, 2], [7, 7, 3, 0]]),
            max_new_tokens=8,
            do_sample=False,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
            **cache,
        )
        for model in (
            trainonce.silence(copy.deepcopy(dense), plan),
            trainonce.cut(copy.deepcopy(dense), plan),
            dense,
        )
    ]
    silenced, small, full = (torch.stack(found.logits) for found in said)
    assert torch.equal(said[0].sequences, said[1].sequences)
    assert torch.allclose(silenced, small, atol=1e-10)
    assert not torch.allclose(silenced, full, atol=1e-2), "the plan drops nothing that matters"


def test_the_trained_small_model_generates(whole: dict[str, Any]):
    model = whole["llama"][0].model.eval()
    prompt = torch.tensor([[1, 5, 9, 2]])
    found = {
        tuple(model.generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=0, **cache)[0].tolist())
        for cache in (
            {"use_cache": False},
            {"cache_implementation": "dynamic"},
            {"cache_implementation": "static"},
        )
    }
    assert len(found) == 1


class Noted(Trainer):
    """Notes what the pruner is given as the loss of a batch, and what the batch was."""

    noted: list[tuple[float, dict[str, Any]]]

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        batch = {name: tensor.clone() for name, tensor in inputs.items()}
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if model.training and "num_items_in_batch" not in kwargs:
            self.noted.append((float(loss.detach()), batch))
        return loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_controller_learns_from_the_trainers_loss_on_the_batch_at_hand(tmp_path: Path, smoothing: float):
    model = llama()
    model.config.attention_dropout = 0.0
    Noted.noted = []
    quiet = TrainOnceCallback(
        keep_flops=0.7, schedule=trainonce.Schedule(search_from=2, settle_from=12, update_every=5), round_to=1
    )
    trainer, _ = make_trainer(
        tmp_path,
        model=model,
        kind=Noted,
        callback=quiet,
        max_steps=STEPS,
        label_smoothing_factor=smoothing,
        save_strategy="no",
    )
    trainer.train()
    rows = {tuple(row["input_ids"].tolist()) for row in sentences()}
    assert Noted.noted, "the controller never learned"
    for loss, batch in Noted.noted:
        assert {tuple(row) for row in batch["input_ids"].tolist()} <= rows
        assert batch["labels"].shape == (4, 6)
        # A mean over one batch of 32 words is near log(32); divided by the four that accumulate it is not.
        assert 2 < loss < 6


def test_the_best_model_is_a_small_one(tmp_path: Path):
    def best_at(step: int) -> Any:
        """A score that falls from step to step, but is best of all before the cuts."""

        class Scored(Trainer):
            def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
                metrics = super().evaluate(*args, **kwargs)
                at = self.state.global_step
                metrics["eval_score"] = 100.0 if at <= 5 else float(-abs(at - step))
                return metrics

        return Scored

    trainer, _ = make_trainer(
        tmp_path,
        kind=best_at(20),
        eval_strategy="steps",
        eval_steps=5,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
    )
    trainer.train()
    assert Path(trainer.state.best_model_checkpoint).name == "checkpoint-20"
    assert digest(trainer.model) == digest(load(tmp_path / "checkpoint-20"))


def test_what_was_saved_loads_to_the_same_bits(whole: dict[str, Any]):
    trainer, _ = whole["llama"]
    folder = Path(trainer.args.output_dir) / "small"
    small = load(folder)
    words = batch_of("llama")["input_ids"]
    with torch.no_grad():
        assert torch.equal(small(words).logits, trainer.model.eval()(words).logits)
    into = load(folder, into=llama())
    assert digest(into) == digest(small)
    with pytest.raises(RuntimeError, match=r"(?i)mismatch"):
        LlamaForCausalLM.from_pretrained(folder)


def test_a_large_model_is_loaded_from_its_pieces(whole: dict[str, Any], tmp_path: Path):
    trainer, _ = whole["llama"]
    shutil.copytree(f"{trainer.args.output_dir}/checkpoint-{STEPS}", tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").unlink()
    trainer.model.save_pretrained(tmp_path, max_shard_size="20KB")
    pieces = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(pieces) > 1
    assert digest(load(tmp_path)) == digest(trainer.model)
    pieces[0].unlink()
    with pytest.raises(PrunerError, match="only one of them has"):
        load(tmp_path)


def test_a_loaded_model_can_be_pruned_further(whole: dict[str, Any], tmp_path: Path):
    trainer, _ = whole["llama"]
    small = load(f"{trainer.args.output_dir}/checkpoint-{STEPS}")
    further, callback = make_trainer(tmp_path, model=small, save_strategy="no")
    further.train()
    assert callback.pruner.shrunk
    assert callback.pruner.partition.macs < trainonce.inspect(llama(), batch_of("llama")).macs


@pytest.mark.parametrize(("task", "killed_at"), [("llama", 11), ("vit", 8)])
def test_a_process_that_was_killed_resumes_to_the_same_bits(
    whole: dict[str, Any], tmp_path: Path, task: str, killed_at: int
):
    script = Path(__file__).with_name("hugging_face.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(killed_at), task],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    resumed, callback = make_trainer(tmp_path, task=task)
    resumed.train(resume_from_checkpoint=True)
    assert callback.pruner.num_steps == STEPS
    assert digest(resumed.model) == digest(whole[task][0].model)


def test_two_processes_train_one_small_model_and_resume_it(tmp_path: Path):
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    run_two(Path(__file__).with_name("hugging_face.py"), str(tmp_path))
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["whole"]["wrapper"] == "DistributedDataParallel"
    assert first["whole"]["cuts"] == 2
    assert first["whole"]["share"] <= 0.7
    assert first["from 5"] == first["from 10"] == first["whole"]
