"""What the callback for `transformers.Trainer` refuses: in one line, with nothing changed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.bits import digest
from trainonce.errors import BudgetError, PrunerError, TrainonceError

pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")

from integrations.hugging_face import SCHEDULE, STEPS, Kill, llama, make_trainer
from trainonce.integrations.transformers import TrainOnceCallback, load

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One undisturbed run."""
    trainer, _ = make_trainer(tmp_path_factory.mktemp("whole"))
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "pass either keep_flops or keep_params"),
        ({"keep_flops": 0.5, "keep_params": 0.5}, "pass either keep_flops or keep_params"),
        ({"keep_flops": 50}, "Did you mean 0.5"),
        ({"keep_flop": 0.5}, "Did you mean keep_flops"),
        ({"keep_flops": 0.5, "model": None}, "there is no option"),
    ],
)
def test_a_callback_that_makes_no_sense_is_refused_at_once(options: dict[str, Any], words: str):
    with pytest.raises(TrainonceError, match=re.escape(words)):
        TrainOnceCallback(**options)


def test_a_budget_out_of_reach_changes_nothing(tmp_path: Path):
    trainer, _ = make_trainer(tmp_path, callback=TrainOnceCallback(keep_flops=0.01), save_strategy="no")
    before = digest(trainer.model)
    with pytest.raises(BudgetError):
        trainer.train()
    assert digest(trainer.model) == before


# peft asks transformers in a way that it has deprecated.
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_adapters_on_frozen_weights_are_refused_and_go_onto_the_small_model(whole: Any, tmp_path: Path):
    peft = pytest.importorskip("peft", reason="needs peft")
    ranks = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(llama(), ranks)
    before = digest(adapted)
    trainer, _ = make_trainer(tmp_path, model=adapted, save_strategy="no")
    with pytest.raises(BudgetError, match=r"^[^\n]*Prune first, and add the adapters to the small model\.$"):
        trainer.train()
    assert digest(adapted) == before
    small = load(Path(whole.args.output_dir) / f"checkpoint-{STEPS}")
    further, _ = make_trainer(tmp_path, model=peft.get_peft_model(small, ranks), save_strategy="no")
    further.remove_callback(TrainOnceCallback)
    before = digest(small)
    further.train()
    assert digest(small) != before


def test_a_checkpoint_without_a_pruner_is_refused(tmp_path: Path):
    llama().save_pretrained(tmp_path / "checkpoint-5")
    trainer, _ = make_trainer(tmp_path)
    with pytest.raises(PrunerError, match="saved without TrainOnceCallback"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))


def test_a_checkpoint_of_another_run_is_refused(whole: Any, tmp_path: Path):
    trainer, _ = make_trainer(tmp_path, task="vit")
    before = digest(trainer.model)
    with pytest.raises(PrunerError, match="of another model"):
        trainer.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-{STEPS}")
    assert digest(trainer.model) == before
    other_budget = TrainOnceCallback(keep_flops=0.8, schedule=SCHEDULE, round_to=1)
    for changes, words in (
        ({"callback": other_budget}, "with keep_flops=0.7, total_steps=24, and this one has keep_flops=0.8"),
        ({"max_steps": 30}, "and this one has total_steps=30"),
    ):
        other, _ = make_trainer(tmp_path, **changes)
        before = digest(other.model)
        with pytest.raises(PrunerError, match=words):
            other.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-15")
        assert digest(other.model) == before


def test_a_folder_that_is_damaged_is_refused(whole: Any, tmp_path: Path):
    source = Path(whole.args.output_dir) / f"checkpoint-{STEPS}"
    for name, change, words in (
        ("trainonce/state.json", lambda path: path.write_bytes(path.read_bytes()[:-9]), "is corrupt"),
        ("trainonce/state.safetensors", lambda path: path.write_bytes(b"0"), "is corrupt"),
        ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:100]), "can't be read"),
        # What it asks for is never done: pickles are not opened.
        (
            "model.safetensors",
            lambda path: path.rename(path.with_name("pytorch_model.bin")),
            "has no weights",
        ),
    ):
        folder = tmp_path / words
        shutil.copytree(source, folder)
        change(folder / name)
        model = llama()
        before = digest(model)
        with pytest.raises(TrainonceError, match=rf"^[^\n]*{words}[^\n]*$"):
            load(folder, into=model)
        assert digest(model) == before
        shutil.rmtree(folder)
    with pytest.raises(PrunerError, match="nowhere is no folder"):
        load(tmp_path / "nowhere")


def test_a_second_training_of_the_same_model_is_refused(tmp_path: Path):
    trainer, _ = make_trainer(tmp_path, save_strategy="no")
    trainer.train()
    with pytest.raises(PrunerError, match="has pruned this model for 24 steps already"):
        trainer.train()


def test_a_callback_that_comes_late_is_refused(tmp_path: Path):
    trainer, callback = make_trainer(tmp_path)
    trainer.remove_callback(callback)
    trainer.add_callback(TrainOnceCallback(keep_flops=0.7))
    with pytest.raises(PrunerError, match="was added too late"):
        trainer.train()


def test_a_run_that_is_stopped_early_says_so(tmp_path: Path):
    class Stop(Kill):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step == self.step

    trainer, _ = make_trainer(tmp_path, Stop(6), save_strategy="no")
    with pytest.raises(PrunerError, match="after 6 of 24 steps"):
        trainer.train()


def test_the_best_model_can_not_be_one_that_is_cut_later(tmp_path: Path):
    with pytest.raises(PrunerError, match="needs the small model"):
        make_trainer(
            tmp_path,
            callback=TrainOnceCallback(keep_flops=0.7, shrink=False),
            eval_strategy="steps",
            save_steps=500,
            load_best_model_at_end=True,
        )
