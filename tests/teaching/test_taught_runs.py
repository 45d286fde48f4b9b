"""Laws of a loop of one's own with a teacher: it resumes, and is cut, to the same bits as one without."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import trainonce
from support.digits import attached, batch, convolutional, predictions, same
from support.started import OPTIMIZERS, SCHEDULE, TOTAL_STEPS
from trainonce import PrunerError, Schedule, SettingError, Teacher
from trainonce.teaching.lessons import Lessons

STOPS = [0, 30, 50, 70, 109]
"""At the start, before the first cut, between the two, after both, before the end."""

TWO_CUTS = Schedule(search_from=10, shrink_from=25, first_cut_from=40, settle_from=64, update_every=1)


def big() -> nn.Module:
    """A wider model with weights of its own."""
    return convolutional(9)


def begun(model: nn.Module, optimizer: Any, teacher: Any) -> trainonce.Pruner:
    return attached(model, optimizer, TOTAL_STEPS, schedule=TWO_CUTS, round_to=1, teacher=teacher)


def started(teacher: Any) -> tuple[nn.Module, Any, trainonce.Pruner]:
    model = convolutional(6)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    return model, optimizer, begun(model, optimizer, teacher)


def shifted() -> nn.Module:
    """A new model with other weights: what it starts with must not matter, nor what its copy has then."""
    model = convolutional(6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    return model


def train_taught(
    model: nn.Module,
    optimizer: Any,
    pruner: trainonce.Pruner,
    steps: range,
    after: Callable[[int], object] = lambda _: None,
    *,
    size: int = 8,
) -> None:
    """The loop of the documentation: the controller hears the teacher, too."""
    dtype = next(model.parameters()).dtype
    model.train()

    def loss_on(images: Tensor, labels: Tensor) -> Tensor:
        outputs = model(images)
        return pruner.taught(cross_entropy(outputs, labels), outputs, images)

    for step in steps:
        optimizer.zero_grad()
        loss_on(*batch(step, size, dtype)).backward()
        optimizer.step()
        pruner.step(lambda: loss_on(*batch(step + 1_000_000, size, dtype)))  # noqa: B023
        after(step + 1)


def on_disk(*things: Any) -> list[Any]:
    """What is left of states in a file of tensors and plain values."""
    file = io.BytesIO()
    torch.save([thing.state_dict() for thing in things], file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("teacher", [lambda: True, big], ids=["itself", "another"])
def test_resumed_at_any_phase_is_the_same_run(teacher: Callable[[], Any]):
    model, optimizer, pruner = started(teacher())
    saved = {0: on_disk(pruner, model, optimizer)}

    def keep(done: int) -> None:
        if done in STOPS:
            saved[done] = on_disk(pruner, model, optimizer)

    train_taught(model, optimizer, pruner, range(TOTAL_STEPS), keep)
    wanted = pruner.finish().state_dict()
    assert [len(saved[stop][0]["cuts"]) for stop in STOPS] == [0, 0, 1, 2, 2]
    for stop, is_restored in [*((stop, False) for stop in STOPS), (50, True)]:
        # An optimizer goes on with the tensors that it has loaded.
        pruner_state, model_state, optimizer_state = copy.deepcopy(saved[stop])
        model = shifted()
        if is_restored:
            trainonce.restore(model, pruner_state)
            model.load_state_dict(model_state)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        pruner = begun(model, optimizer, teacher())
        pruner.load_state_dict(pruner_state)
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
        train_taught(model, optimizer, pruner, range(stop, TOTAL_STEPS))
        assert same(dict(pruner.finish().state_dict()), dict(wanted)), (stop, is_restored)


def test_cutting_early_changes_nothing_but_the_work():
    finals = []
    for shrink in (True, False):
        model = convolutional(12).double()
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        pruner = attached(
            model, optimizer, TOTAL_STEPS, schedule=TWO_CUTS, round_to=1, teacher=True, shrink=shrink
        )
        train_taught(model, optimizer, pruner, range(TOTAL_STEPS))
        assert len(pruner.cuts) == (2 if shrink else 0)
        pruner.finish()
        finals.append((predictions(model), pruner.masks))
    (early, masks), (late, others) = finals
    assert all(torch.equal(masks[group], others[group]) for group in masks)
    assert float((early - late).abs().max()) < 1e-8 * float(late.abs().max())


def test_a_teacher_changes_the_run():
    finals = []
    for teacher in (True, None):
        model, optimizer, pruner = started(teacher)
        train_taught(model, optimizer, pruner, range(20))
        finals.append(model.state_dict())
    assert not same(dict(finals[0]), dict(finals[1]))


class Watching(pickle.Pickler):
    """Notes every object that goes into a pickle."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.seen: set[int] = set()

    def persistent_id(self, obj: Any) -> None:
        self.seen.add(id(obj))


def test_no_result_holds_the_teacher():
    model, optimizer, pruner = started(True)
    ema = AveragedModel(model)
    train_taught(model, optimizer, pruner, range(TOTAL_STEPS), lambda _: ema.update_parameters(model))
    assert pruner.lessons is not None
    teacher = pruner.lessons.model
    assert teacher[0][0].out_channels == 6 > ema.module[0][0].out_channels
    for thing, is_expected in ((pruner.finish(), False), (ema, False), (nn.Sequential(teacher), True)):
        watching = Watching()
        watching.dump(thing)
        assert (id(teacher) in watching.seen) == is_expected


@pytest.mark.parametrize("wrap", [AveragedModel, lambda model: torch.compile(model, backend="eager")])
def test_a_teacher_is_cut_with_nobody(wrap: Callable[[nn.Module], Any]):
    """A class of averages, with the weights that the model starts with."""
    model, optimizer, _ = started(None)
    teacher = wrap(copy.deepcopy(model))
    pruner = attached(model, optimizer, TOTAL_STEPS, schedule=SCHEDULE, round_to=1, teacher=teacher)
    before = copy.deepcopy(dict(teacher.state_dict()))
    train_taught(model, optimizer, pruner, range(70))
    assert pruner.shrunk
    assert same(dict(teacher.state_dict()), before)


def test_an_average_that_moves_is_cut_even_if_it_teaches():
    model, optimizer, _ = started(None)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    pruner = attached(model, optimizer, TOTAL_STEPS, schedule=SCHEDULE, round_to=1, teacher=ema)
    train_taught(model, optimizer, pruner, range(70), lambda _: ema.update_parameters(model))
    assert pruner.shrunk
    assert [part.shape for part in ema.parameters()] == [part.shape for part in model.parameters()]


def test_a_compiled_teacher_is_the_same_teacher():
    student, teacher = convolutional(6), big()
    states = [
        Lessons(Teacher(model=model), student).state_dict()
        for model in (teacher, torch.compile(teacher, backend="eager"), nn.DataParallel(teacher))
    ]
    assert states[0] == states[1] == states[2]


def test_the_copy_has_no_gradients():
    model = convolutional(6)
    model(batch(0, 4)[0]).sum().backward()
    gradients = [part.grad for part in model.parameters()]
    lessons = Lessons(Teacher(), model)
    assert all(part.grad is None and not part.requires_grad for part in lessons.model.parameters())
    assert all(part.grad is old for part, old in zip(model.parameters(), gradients, strict=True))


class Private(nn.Sequential):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("not me")


def test_what_can_not_be_copied_is_refused_in_one_line():
    with pytest.raises(SettingError, match=r"can't be copied \(TypeError: not me\).*teacher=other") as caught:
        Lessons(Teacher(), Private(nn.Linear(2, 2)))
    assert "\n" not in str(caught.value)


def test_a_teacher_without_inputs_is_refused():
    model, _, pruner = started(True)
    outputs = model(batch(0, 4)[0])
    with pytest.raises(PrunerError, match=r"Pass them: pruner\.taught\(loss, outputs, images\)"):
        pruner.taught(outputs.sum(), outputs)


def test_with_the_whole_weight_a_loss_without_labels_does_no_harm():
    model, _, pruner = started(Teacher(model=big(), weight=1.0))
    images = batch(0, 4)[0]
    outputs = model(images)
    nothing = cross_entropy(outputs, torch.full((4,), -100))
    assert nothing.isnan()
    assert pruner.taught(nothing, outputs, images).isfinite()
