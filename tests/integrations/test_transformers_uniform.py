"""Equal widths in `transformers.Trainer`: what it saves at the end loads with a plain from_pretrained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from support.bits import digest

pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")

from transformers import LlamaForCausalLM

from integrations.hugging_face import SCHEDULE, make_trainer
from trainonce.integrations.transformers import TrainOnceCallback, load

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")

WORDS = torch.arange(1, 7)[None]


def uniform() -> TrainOnceCallback:
    return TrainOnceCallback(keep_flops=0.7, schedule=SCHEDULE, uniform=True)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(WORDS).logits


def test_what_a_trainer_saves_loads_with_from_pretrained(tmp_path: Path):
    trainer, callback = make_trainer(tmp_path, callback=uniform(), save_strategy="no")
    trainer.train()
    assert isinstance(callback, TrainOnceCallback)
    trainer.save_model(str(tmp_path / "small"))
    plain = LlamaForCausalLM.from_pretrained(tmp_path / "small")
    assert torch.equal(logits(plain), logits(trainer.model))
    assert plain.config.intermediate_size < 48
    assert digest(load(tmp_path / "small")) == digest(trainer.model)


def test_checkpoints_of_such_a_run_load_small(tmp_path: Path):
    trainer, _ = make_trainer(tmp_path, callback=uniform(), save_steps=8)
    trainer.train()
    folders = sorted(tmp_path.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
    assert torch.equal(logits(load(folders[-1])), logits(trainer.model))
    middle = load(folders[-2])
    assert sum(part.numel() for part in middle.parameters()) >= sum(
        part.numel() for part in trainer.model.parameters()
    )


def test_the_best_model_at_the_end_is_an_ordinary_one(tmp_path: Path):
    trainer, _ = make_trainer(
        tmp_path,
        callback=uniform(),
        trained_by={"compute_metrics": lambda _: {"score": 1.0}},
        eval_strategy="steps",
        eval_steps=4,
        save_steps=4,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
    )
    trainer.train()
    best = load(trainer.state.best_model_checkpoint)
    assert torch.allclose(logits(best), logits(trainer.model), atol=1e-5)
    trainer.save_model(str(tmp_path / "small"))
    plain = LlamaForCausalLM.from_pretrained(tmp_path / "small")
    assert torch.equal(logits(plain), logits(trainer.model))
