"""What else a training with `transformers.Trainer` has: early stopping, logs, recomputation, second runs."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from support.bits import digest
from trainonce.errors import PrunerError

pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")

from transformers import EarlyStoppingCallback

from integrations.hugging_face import SCHEDULE, STEPS, llama, make_trainer
from trainonce.integrations.transformers import TrainOnceCallback, load

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")


def test_two_callbacks_are_refused_at_once(tmp_path: Path):
    with pytest.raises(PrunerError, match=r"^this trainer has two TrainOnceCallbacks[^\n]*$"):
        make_trainer(tmp_path, TrainOnceCallback(keep_flops=0.7))


def test_early_stopping_waits_for_the_last_cut(tmp_path: Path):
    falling = itertools.count(0, -1)
    trainer, callback = make_trainer(
        tmp_path,
        EarlyStoppingCallback(early_stopping_patience=1),
        trained_by={"compute_metrics": lambda _: {"score": float(next(falling))}},
        max_steps=2 * STEPS,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
    )
    trainer.train()
    cut_at = 13
    assert callback.pruner.shrunk
    assert cut_at <= trainer.state.global_step <= cut_at + 5
    assert digest(trainer.model) == digest(load(trainer.state.best_model_checkpoint))


def test_the_share_is_in_the_logs(tmp_path: Path):
    trainer, callback = make_trainer(
        tmp_path, save_strategy="no", logging_steps=6, eval_strategy="steps", eval_steps=12
    )
    trainer.train()
    *rows, summary = trainer.state.log_history
    assert [row["keep_flops"] for row in rows if "loss" in row][-1] == pytest.approx(
        callback.pruner.keep_now, abs=1e-4
    )
    assert not any("keep_flops" in row for row in rows if "eval_loss" in row)
    assert summary["keep_flops"] == pytest.approx(callback.pruner.keep_now, abs=1e-4)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_recomputed_activations_change_nothing(tmp_path: Path):
    def train(**recomputes: Any) -> str:
        model = llama()
        model.config.attention_dropout = 0.0
        trainer, callback = make_trainer(tmp_path, model=model, save_strategy="no", **recomputes)
        trainer.train()
        assert callback.pruner.shrunk
        return digest(trainer.model)

    plain = train()
    for reentrant in (True, False):
        assert plain == train(
            gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": reentrant}
        )


def test_a_checkpoint_of_another_length_changes_nothing(tmp_path: Path):
    first, _ = make_trainer(tmp_path, max_steps=-1, num_train_epochs=4, save_steps=8)
    first.train()
    other, _ = make_trainer(tmp_path, max_steps=-1, num_train_epochs=5)
    before = digest(other.model)
    with pytest.raises(PrunerError, match="a run with 4 epochs, and this one has 5"):
        other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-16"))
    assert digest(other.model) == before


def test_what_was_pruned_twice_loads_from_its_folder_alone(tmp_path: Path):
    once, _ = make_trainer(tmp_path / "once")
    once.train()
    once.save_model(str(tmp_path / "first"))
    twice, _ = make_trainer(tmp_path / "twice", model=load(tmp_path / "first"), save_steps=8)
    twice.train()
    twice.save_model(str(tmp_path / "second"))
    assert digest(load(tmp_path / "second")) == digest(twice.model)
    assert digest(load(tmp_path / "second", into=load(tmp_path / "first"))) == digest(twice.model)
    for start in (load(tmp_path / "first"), llama()):
        again, _ = make_trainer(tmp_path / "twice", model=start)
        again.train(resume_from_checkpoint=str(tmp_path / "twice" / "checkpoint-16"))
        assert digest(again.model) == digest(twice.model)


def test_a_small_model_that_was_trained_on_without_the_callback_loads_into_its_like(tmp_path: Path):
    trainer, callback = make_trainer(tmp_path / "run", save_strategy="no")
    trainer.train()
    trainer.save_model(str(tmp_path / "small"))
    trainer.remove_callback(callback)
    model = load(tmp_path / "small")
    model.save_pretrained(tmp_path / "plain", save_original_format=False)
    like = load(tmp_path / "small")
    with torch.no_grad():
        like.model.norm.weight.zero_()
    assert digest(load(tmp_path / "plain", into=like)) == digest(model)
    for into in (None, llama()):
        with pytest.raises(PrunerError, match=r"^[^\n]*doesn't say how small[^\n]*into=small[^\n]*$"):
            load(tmp_path / "plain", into=into)


def test_a_class_of_ones_own_is_loaded_into_a_new_one(tmp_path: Path):
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            hidden = (nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 32))
            self.layers = nn.Sequential(nn.Embedding(32, 16), *hidden)

        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            found = {"logits": self.layers(input_ids)}
            if labels is None:
                return found
            return {"loss": cross_entropy(found["logits"].flatten(0, 1), labels.flatten()), **found}

    callback = TrainOnceCallback(keep_flops=0.7, schedule=SCHEDULE, round_to=1)
    trainer, _ = make_trainer(tmp_path / "run", model=Words(), callback=callback, save_strategy="no")
    trainer.train()
    trainer.save_model(str(tmp_path / "small"))
    assert digest(load(tmp_path / "small", into=Words())) == digest(trainer.model)
    with pytest.raises(PrunerError, match="is of a class that transformers doesn't have"):
        load(tmp_path / "small")
