"""Runs of Ultralytics that are interrupted, continued, or can't be pruned at all."""

from __future__ import annotations

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from integrations.yolo_runs import SETTINGS, draw

pytest.importorskip("ultralytics", reason="needs ultralytics")

from ultralytics import YOLO

from trainonce.errors import BudgetError, PrunerError
from trainonce.integrations.small_yolo import REFUSAL
from trainonce.integrations.ultralytics import count_steps, keep_size, prune

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning"),
    # Ultralytics' own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def shapes(model: Any) -> dict[str, torch.Size]:
    return {name: item.shape for name, item in model.state_dict().items()}


def num_parameters(model: Any) -> int:
    return sum(map(torch.numel, model.parameters()))


class Killed(Exception):
    """The process is gone."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("yolo")
    return {"data": str(draw(folder / "pictures")), "project": str(folder), **SETTINGS}


def copied(model: Any) -> dict[str, torch.Tensor]:
    return {name: item.detach().clone() for name, item in model.state_dict().items()}


def observed(trainer: Any) -> dict[str, Any]:
    """All that a resumed run should have."""
    pruner = trainer.pruner
    return {
        "weights": copied(trainer.model),
        "average": copied(trainer.ema.ema),
        "masks": pruner.masks,
        "numbers": (pruner.num_steps, len(pruner.cuts), pruner.keep_now, pruner.phase),
    }


@pytest.fixture(scope="module", params=[1, 2], ids=["dense", "cut once"])
def interrupted(request: Any, settings: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """A copy of what a run of four epochs has saved before it was killed, and what the run had then."""
    torch.manual_seed(0)
    model, seen = prune(YOLO("yolov8n.yaml"), keep_flops=0.5), {}

    def kill(trainer: Any) -> None:
        if trainer.epoch == request.param:
            raise Killed

    model.add_callback("on_model_save", lambda trainer: seen.update(observed(trainer)))
    model.add_callback("on_train_batch_end", kill)
    with pytest.raises(Killed):
        model.train(epochs=4, name=f"killed{request.param}", **settings)
    assert seen["numbers"][1] == request.param - 1
    return shutil.copy(model.trainer.last, model.trainer.last.with_name("copy.pt")), seen


def test_a_run_goes_on_with_the_weights_and_the_choice_that_it_had(
    interrupted: tuple[Path, dict[str, Any]],
) -> None:
    file, seen = interrupted
    model, found = prune(YOLO(file), keep_flops=0.5), {}
    model.add_callback("on_train_start", lambda trainer: found.update(observed(trainer)))
    model.train(resume=True)
    assert found["numbers"] == seen["numbers"]
    for kind in ("weights", "masks"):
        assert found[kind].keys() == seen[kind].keys()
        assert all(torch.equal(item, seen[kind][name]) for name, item in found[kind].items())
    for name, item in found["average"].items():
        # Ultralytics saves the average in half precision.
        before = seen["average"][name]
        assert torch.equal(item, before.half().float() if before.is_floating_point() else before)
    pruner = model.trainer.pruner
    assert pruner.shrunk
    assert pruner.num_steps == count_steps(model.trainer) == 8
    assert pruner.keep_now <= 0.5
    assert shapes(YOLO(model.trainer.best).model) == shapes(pruner.model)


def test_a_run_is_not_resumed_without_trainonce_or_with_another_budget(
    interrupted: tuple[Path, dict[str, Any]],
) -> None:
    file, _ = interrupted
    with pytest.raises(KeyError, match=REFUSAL):
        YOLO(file).train(resume=True)
    with pytest.raises(PrunerError, match="another model, budget or total_steps"):
        prune(YOLO(file), keep_flops=0.25).train(resume=True)


@pytest.fixture(scope="module")
def finished(settings: dict[str, Any]) -> Path:
    """The small model of a short run, in which batches are accumulated."""
    torch.manual_seed(0)
    model = prune(YOLO("yolov8n.yaml"), keep_params=0.5)
    changes = {"batch": 2, "nbs": 4, "warmup_epochs": 1, "name": "finished"}
    model.train(epochs=3, **settings | changes)
    assert model.trainer.accumulate == 2
    assert model.trainer.pruner.num_steps == count_steps(model.trainer) == 7
    return model.trainer.best


def test_a_small_model_can_be_trained_further(finished: Path, settings: dict[str, Any]) -> None:
    before = YOLO(finished)
    again = keep_size(YOLO(finished))
    again.train(epochs=1, name="further", **settings)
    assert shapes(again.model) == shapes(before.model)
    assert any(
        not torch.equal(item, again.model.state_dict()[name])
        for name, item in before.model.state_dict().items()
    )
    with pytest.raises(KeyError, match=REFUSAL):
        YOLO(again.trainer.best).train(epochs=1, name="refused", **settings)


def test_a_small_model_can_be_made_smaller(finished: Path, settings: dict[str, Any]) -> None:
    model = prune(YOLO(finished), keep_params=0.5)
    model.train(epochs=2, name="smaller", **settings)
    assert num_parameters(model.model) <= 0.5 * num_parameters(YOLO(finished).model)


def test_a_second_training_of_the_same_object_cuts_no_more(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = prune(YOLO("yolov8n.yaml"), keep_params=0.5)
    model.train(epochs=2, name="first", **settings)
    before = shapes(model.model)
    model.train(epochs=1, name="second", **settings)
    assert model.trainer.pruner is None
    assert shapes(YOLO(model.trainer.best).model) == before
    prune(model, keep_params=0.5).train(epochs=2, name="third", **settings)
    assert num_parameters(model.model) < 0.51 * sum(shape.numel() for shape in before.values())


def test_a_small_model_keeps_its_classes(finished: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    other = tmp_path / "data.yaml"
    other.write_text(Path(settings["data"]).read_text().replace("1: blue", "1: blue, 2: green"))
    with pytest.raises(PrunerError, match="2 classes and the data has 3"):
        keep_size(YOLO(finished)).train(epochs=1, name="classes", **settings | {"data": str(other)})
    with pytest.raises(PrunerError, match="pretrained"):
        keep_size(YOLO(finished)).train(epochs=1, name="pretrained", pretrained=False, **settings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"time": 0.1}, "time=0.1"),
        ({"compile": True}, "compile=True"),
        ({"distill_model": "teacher.pt"}, "distill_model=teacher.pt"),
        ({"quantize": 8}, "quantize=8"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_what_cannot_be_pruned_is_refused_before_anything_is_built(
    change: dict[str, Any], words: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(PrunerError, match=words):
        prune(YOLO("yolov8n.yaml"), keep_flops=0.5).train(epochs=2, name="refused", **settings | change)


@pytest.mark.parametrize("options", [{}, {"keep_flops": 0.5, "keep_params": 0.5}, {"keep_flops": 50}])
def test_a_budget_is_checked_at_once(options: dict[str, Any]) -> None:
    model = YOLO("yolov8n.yaml")
    before = copy.copy(model.callbacks)
    with pytest.raises(BudgetError):
        prune(model, **options)
    assert model.callbacks == before


def test_a_budget_that_cannot_be_reached_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BudgetError):
        prune(YOLO("yolov8n.yaml"), keep_flops=1e-4).train(epochs=2, name="refused", **settings)


@pytest.mark.parametrize("wrap", [lambda model: prune(model, keep_flops=0.5), keep_size])
def test_only_a_yolo_is_taken(wrap: Any) -> None:
    with pytest.raises(PrunerError, match="expected a YOLO, got Linear"):
        wrap(torch.nn.Linear(2, 2))


def test_the_last_request_counts() -> None:
    model = YOLO("yolov8n.yaml")
    first = {event: list(functions) for event, functions in model.callbacks.items()}
    prune(prune(model, keep_flops=0.5), keep_flops=0.25)
    added = [function for event in first for function in model.callbacks[event][len(first[event]) :]]
    assert {function.__self__._request.options["keep_flops"] for function in added} == {0.25}
    assert len(added) == 5


def test_several_devices_are_refused() -> None:
    model = prune(YOLO("yolov8n.yaml"), keep_flops=0.5)
    with pytest.raises(PrunerError, match="one device"):
        pickle.dumps(model.callbacks)
