"""Tiny models and runs of `transformers.Trainer` for the tests; run as a script, one of two processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

import trainonce
from support.bits import digest
from trainonce.integrations.transformers import TrainOnceCallback

STEPS = 24
SCHEDULE = trainonce.Schedule(search_from=2, settle_from=12, update_every=1)
"""The first cut is at step 7, the second at step 13."""


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        attention_dropout=0.1,
    )
    return LlamaForCausalLM(config)


def vit() -> ViTForImageClassification:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=8,
        patch_size=4,
        num_channels=1,
        num_labels=4,
        hidden_dropout_prob=0.1,
    )
    return ViTForImageClassification(config)


def sentences(count: int = 64) -> list[dict[str, Any]]:
    """Rows of numbers, each counting up by its own step."""
    found = []
    for step, start in torch.randint(1, 32, (count, 2), generator=torch.Generator().manual_seed(1)).tolist():
        words = (start + step * torch.arange(6)) % 32
        found.append({"input_ids": words, "labels": words.clone()})
    return found


def images(count: int = 64) -> list[dict[str, Any]]:
    """Noise with one bright quarter."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for label in torch.randint(4, (count,), generator=generator).tolist():
        pixels = torch.randn(1, 8, 8, generator=generator)
        pixels[:, label // 2 * 4 :][:, :4, label % 2 * 4 :][:, :, :4] += 2
        found.append({"pixel_values": pixels, "labels": label})
    return found


TASKS = {"llama": (llama, sentences), "vit": (vit, images)}


class KilledError(Exception):
    pass


class Kill(TrainerCallback):
    """Ends a run as a power cut would: nothing is saved. The process ends, too, if it is `for_good`."""

    def __init__(self, step: int, *, for_good: bool = False) -> None:
        self.step = step
        self.for_good = for_good

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            if self.for_good:
                os.kill(os.getpid(), signal.SIGKILL)
            raise KilledError


def make_trainer(
    out: Path,
    *others: TrainerCallback,
    task: str = "llama",
    model: nn.Module | None = None,
    callback: TrainOnceCallback | None = None,
    kind: type[Trainer] = Trainer,
    trained_by: dict[str, Any] | None = None,
    **changes: Any,
) -> tuple[Trainer, TrainOnceCallback]:
    """A trainer of a tiny model, and its callback; `changes` are TrainingArguments."""
    build, make_data = TASKS[task]
    arguments: dict[str, Any] = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "learning_rate": 1e-2,
        "save_steps": 5,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    callback = callback or TrainOnceCallback(keep_flops=0.7, schedule=SCHEDULE, round_to=1)
    trainer = kind(
        model or build(),
        TrainingArguments(str(out), **(arguments | changes)),
        train_dataset=make_data(),
        eval_dataset=make_data(8),
        callbacks=[callback, *others],
        **(trained_by or {}),
    )
    return trainer, callback


def killed(out: Path, step: int, task: str) -> None:
    """Train until this process is killed, as the kernel does it: nothing is saved, nothing is closed."""
    trainer, _ = make_trainer(out, Kill(step, for_good=True), task=task)
    trainer.train()


def in_two_processes(out: Path) -> None:
    """Train, and once more from what was saved on the way; write what each rank came to."""

    def train(resume_from: str | None = None) -> dict[str, Any]:
        trainer, callback = make_trainer(out / "run", gradient_accumulation_steps=2)
        trainer.train(resume_from_checkpoint=resume_from)
        return {
            "weights": digest(trainer.model),
            "wrapper": type(trainer.model_wrapped).__name__,
            "cuts": len(callback.pruner.cuts),
            "share": callback.pruner.keep_now,
        }

    found = {"whole": train()} | {
        f"from {step}": train(str(out / "run" / f"checkpoint-{step}")) for step in (5, 10)
    }
    (out / f"rank{dist.get_rank()}.json").write_text(json.dumps(found))
    # A rank that leaves while the other still talks may abort.
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """One of two processes, or one that is killed if a step is given."""
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        killed(out, int(sys.argv[2]), sys.argv[3])
    else:
        in_two_processes(out)


if __name__ == "__main__":
    main()
