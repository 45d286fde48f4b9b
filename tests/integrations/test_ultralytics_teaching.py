"""A teacher with a loss of its own while the real Ultralytics trains a YOLO."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from integrations.yolo_runs import SETTINGS, draw

pytest.importorskip("ultralytics", reason="needs ultralytics")

from ultralytics import YOLO

import trainonce
from trainonce.errors import PrunerError
from trainonce.integrations.ultralytics import prune
from trainonce.integrations.yolo_teaching import YoloLessons

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning"),
    # Ultralytics' own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def scores_apart(mine: Any, wanted: Any) -> Tensor:
    """The mean squared distance of what the heads say about classes."""
    return (mine["scores"].sigmoid() - wanted[1]["scores"].sigmoid()).square().mean()


def test_a_yolo_learns_from_itself_and_its_files_are_ordinary(tmp_path: Path):
    """The loss of each batch is the mean per image of both parts, times the images, as in its own."""
    torch.manual_seed(0)
    model = prune(
        YOLO("yolov8n.yaml"),
        keep_flops=0.5,
        teacher=trainonce.Teacher(weight=0.25, loss=scores_apart),
    )
    seen: list[tuple[float, float]] = []

    def compare(trainer: Any) -> None:
        if seen:
            return
        student, teacher = trainer.model, trainer.pruner.lessons.model
        batch = {name: part.clone() if isinstance(part, Tensor) else part for name, part in kept[-1].items()}
        statistics = copy.deepcopy(student.state_dict())
        taught = student(batch)[0].sum()
        student.load_state_dict(statistics)
        heads: list[Any] = []
        hook = student.model[-1].register_forward_hook(lambda _, __, outputs: heads.append(outputs))
        plain = student.loss(batch)[0].sum()
        hook.remove()
        student.load_state_dict(statistics)
        with torch.no_grad():
            wanted = teacher(batch["img"])
        assert not teacher.training
        distance = scores_apart(heads[0], wanted)
        count = len(batch["img"])
        seen.append((float(taught.detach()), float((0.75 * plain + 0.25 * distance * count).detach())))

    kept: list[dict[str, Any]] = []

    def keep(trainer: Any) -> None:
        preprocess = trainer.preprocess_batch

        def noted(batch: Any) -> Any:
            kept.append(preprocess(batch))
            return kept[-1]

        trainer.preprocess_batch = noted

    model.add_callback("on_train_start", keep)
    model.add_callback("on_train_batch_end", compare)
    data = draw(tmp_path / "pictures")
    model.train(data=str(data), project=str(tmp_path), name="taught", epochs=3, **SETTINGS)
    ((found, by_hand),) = seen
    assert found == pytest.approx(by_hand, rel=1e-4)
    pruner = model.trainer.pruner
    assert pruner.shrunk
    assert not model.trainer.model._forward_hooks
    for file in (model.trainer.best, model.trainer.last):
        small = YOLO(file).model
        assert sum(map(torch.numel, small.parameters())) == sum(map(torch.numel, pruner.model.parameters()))


class FakeLessons:
    """What a pruner with a teacher looks like to the hooks."""

    lessons = None


def test_a_copy_of_the_model_in_training_is_rid_of_the_hooks():
    """After a loss that was not finite, Ultralytics makes a new average and pickles it."""
    model = YOLO("yolov8n.yaml").model
    hooks = YoloLessons(model, FakeLessons())  # type: ignore[arg-type]
    copied = copy.deepcopy(model)
    assert copied._forward_hooks
    assert copied.model[-1]._forward_hooks
    hooks.leave(copied)
    assert not copied._forward_hooks
    assert not copied.model[-1]._forward_hooks
    assert b"trainonce" not in pickle.dumps(copied)
    hooks.end()
    assert b"trainonce" not in pickle.dumps(model)


def test_bad_teachers_are_refused_in_one_line():
    for teacher, words in (
        (True, "a YOLO returns boxes and no logits, so a teacher needs a loss"),
        (YOLO("yolov8n.yaml"), r"whose train\(\) trains it. Pass its network"),
    ):
        with pytest.raises(PrunerError, match=words) as caught:
            prune(YOLO("yolov8n.yaml"), keep_flops=0.5, teacher=teacher)
        assert "\n" not in str(caught.value)
