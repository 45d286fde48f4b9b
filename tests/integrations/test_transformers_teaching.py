"""A teacher in the real `transformers.Trainer`: the loss is what one would compute by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce

pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")

from transformers import Trainer, TrainerCallback

from integrations.hugging_face import SCHEDULE, STEPS, TASKS, Kill, KilledError, llama, make_trainer
from support.bits import digest
from trainonce.errors import SettingError
from trainonce.integrations.transformers import TrainOnceCallback, load
from trainonce.storage.checkpoint.folder import read_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")


def taught_by(teacher: Any, **changes: Any) -> TrainOnceCallback:
    options = {"keep_flops": 0.7, "schedule": SCHEDULE, "round_to": 1} | changes
    return TrainOnceCallback(**options, teacher=teacher)


def other(task: str) -> nn.Module:
    """A model of the same task with weights of its own."""
    model = TASKS[task][0]()
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return model.eval()


class Noted(Trainer):
    """Notes the batches of each step."""

    batches: list[dict[str, Tensor]]

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if "num_items_in_batch" in kwargs:
            self.batches.append({name: tensor.clone() for name, tensor in inputs.items()})
        return super().compute_loss(model, inputs, *args, **kwargs)


class Gradients(TrainerCallback):
    """Keeps the gradients of the first step."""

    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        self.found = {
            name: part.grad.clone()
            for name, part in known["model"].named_parameters()
            if part.grad is not None
        }
        raise KilledError


def distance_by_hand(mine: Tensor, theirs: Tensor, temperature: float) -> Tensor:
    mine, theirs = (torch.softmax(part / temperature, dim=-1) for part in (mine, theirs))
    return temperature**2 * (theirs * (theirs.log() - mine.log())).sum(-1).mean()


@pytest.mark.parametrize("task", list(TASKS))
def test_accumulated_gradients_are_those_of_the_loss_by_hand(task: str, tmp_path: Path):
    """Llama's losses are parts of the step's mean already; ViT's are means that the trainer divides."""
    model, teacher = TASKS[task][0](), other(task)
    for name in ("attention_dropout", "hidden_dropout_prob"):
        setattr(model.config, name, 0.0)
    model = type(model)(model.config)
    by_hand = copy.deepcopy(model).train()
    Noted.batches, gradients = [], Gradients()
    trainer, _ = make_trainer(
        tmp_path,
        gradients,
        task=task,
        model=model,
        kind=Noted,
        callback=taught_by(trainonce.Teacher(model=teacher, weight=0.3, temperature=3.0)),
        gradient_accumulation_steps=2,
        max_grad_norm=0.0,
    )
    with pytest.raises(KilledError):
        trainer.train()
    assert len(Noted.batches) == 2
    for batch in Noted.batches:
        with torch.no_grad():
            wanted = teacher(**batch).logits
        outputs = by_hand(**batch)
        # Both batches have the same number of labels, so the mean of their means is the mean of all.
        distance = distance_by_hand(outputs.logits, wanted, 3.0)
        ((0.7 * outputs.loss + 0.3 * distance) / 2).backward()
    own = {name: part.grad for name, part in by_hand.named_parameters() if part.grad is not None}
    assert own.keys() == gradients.found.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(gradients.found[name], gradient, rtol=1e-4, atol=1e-6)
    assert any(gradient.abs().max() > 1e-4 for gradient in own.values())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """One undisturbed run that is taught by itself."""
    trainer, callback = make_trainer(tmp_path_factory.mktemp("taught"), callback=taught_by(True))
    trainer.train()
    # Here, where the state that accelerate keeps of a process is whole.
    trainer.save_model(f"{trainer.args.output_dir}/small")
    assert len(callback.pruner.cuts) == 2
    return trainer


def test_a_teacher_makes_another_model(whole: Trainer, tmp_path: Path):
    plain, _ = make_trainer(tmp_path, save_strategy="no")
    plain.train()
    assert digest(plain.model) != digest(whole.model)


@pytest.mark.parametrize("killed_at", [6, 11, 21], ids=["before the cuts", "between", "after"])
def test_a_killed_run_resumes_to_the_same_bits(whole: Trainer, tmp_path: Path, killed_at: int):
    trainer, _ = make_trainer(tmp_path, Kill(killed_at), callback=taught_by(True))
    with pytest.raises(KilledError):
        trainer.train()
    resumed, callback = make_trainer(tmp_path, callback=taught_by(True))
    resumed.train(resume_from_checkpoint=True)
    assert callback.pruner.num_steps == STEPS
    assert digest(resumed.model) == digest(whole.model)


def test_a_compiled_model_is_taught_the_same(whole: Trainer, tmp_path: Path):
    trainer, _ = make_trainer(
        tmp_path,
        callback=taught_by(True),
        torch_compile=True,
        torch_compile_backend="eager",
        save_strategy="no",
    )
    trainer.train()
    assert digest(trainer.model) == digest(whole.model)


def test_checkpoints_have_the_teacher_and_the_result_has_not(whole: Trainer):
    small, last = (Path(whole.args.output_dir) / name for name in ("small", f"checkpoint-{STEPS}"))
    assert set(read_checkpoint(last / "trainonce")["teacher"]["weights"]) == set(whole.model.state_dict())
    assert "teacher" not in read_checkpoint(small / "trainonce")
    assert digest(load(small)) == digest(whole.model)
    assert digest(load(last)) == digest(whole.model)


def test_validation_does_not_ask_the_teacher(tmp_path: Path):
    trainer, callback = make_trainer(tmp_path, callback=taught_by(other("llama")), save_strategy="no")
    trainer.train()
    calls: list[None] = []
    callback.pruner.lessons.model.register_forward_hook(lambda *_: calls.append(None))
    with torch.no_grad():
        loss = sum(float(llama_loss(trainer.model, batch)) for batch in trainer.get_eval_dataloader())
    assert trainer.evaluate()["eval_loss"] == pytest.approx(loss, rel=1e-4)
    assert not calls


def llama_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model.eval()(**batch).loss


def test_bad_teachers_are_refused_in_one_line(tmp_path: Path):
    with pytest.raises(SettingError, match="teacher must be True, a trained"):
        taught_by("self")
    model = llama()
    trainer, _ = make_trainer(tmp_path, model=model, callback=taught_by(model))
    with pytest.raises(SettingError, match="shares weights with the model"):
        trainer.train()
    config = copy.deepcopy(model.config)
    config.vocab_size = 40
    trainer, _ = make_trainer(tmp_path, callback=taught_by(type(model)(config)))
    with pytest.raises(SettingError, match=r"logits have shape \(4, 6, 40\), and the model's \(4, 6, 32\)"):
        trainer.train()
