"""A teacher answers as it was when the run began, is left as it is, and is known again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import trainonce
from support.digits import attached, batch, convolutional, perceptron
from trainonce import PrunerError, SettingError, Teacher
from trainonce.teaching.lessons import Lessons, check_same_teaching


def with_dropout() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, 10))


def test_the_copy_does_not_learn_and_answers_in_eval_mode():
    model = with_dropout().train()
    lessons, before = Lessons(Teacher(), model), copy.deepcopy(model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    images = batch(0)[0]
    heard: list[Tensor] = []
    lessons.teacher = Teacher(loss=lambda _, wanted: heard.append(wanted) or wanted.sum())
    lessons.distance(model(images), (images,), {})
    assert torch.equal(heard[0], before(images))
    assert model.training
    assert not heard[0].requires_grad


def test_another_model_is_left_as_it_is():
    teacher = with_dropout().train()
    before = copy.deepcopy(teacher.state_dict())
    student, images = convolutional(4), batch(0)[0]
    Lessons(Teacher(model=teacher), student).distance(student(images), (images,), {})
    assert teacher.training
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())
    assert all(parameter.requires_grad for parameter in teacher.parameters())


@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_the_weight_is_a_share_of_the_loss(weight: float):
    student, (images, labels) = perceptron(8), batch(0)
    lessons = Lessons(Teacher(model=with_dropout(), weight=weight), student)
    outputs = student(images)
    loss, distance = cross_entropy(outputs, labels), lessons.distance(outputs, (images,), {})
    assert torch.equal(lessons.taught(loss, distance), (1 - weight) * loss + weight * distance)


def test_without_a_teacher_the_loss_is_the_loss():
    model = perceptron(8)
    pruner = attached(model, torch.optim.SGD(model.parameters(), lr=0.1), 400)
    loss = torch.tensor(1.5)
    assert pruner.taught(loss, None) is loss


def test_a_teacher_that_the_loss_lacks_is_missed_at_the_first_step():
    model = perceptron(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = attached(model, optimizer, 400, teacher=True)
    images, labels = batch(0)
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    with pytest.raises(PrunerError, match=r"but the loss doesn't use it.*pruner\.taught"):
        pruner.step(lambda: loss)


def test_a_copy_is_saved_with_its_weights_and_another_model_by_its_checksum():
    model, other = perceptron(8), perceptron(12)
    assert set(Lessons(Teacher(), model).state_dict()["weights"]) == set(model.state_dict())
    state = Lessons(Teacher(model=other), model).state_dict()
    assert set(state) == {"weight", "temperature", "has_own_loss", "sha256"}
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1e-3
    assert Lessons(Teacher(model=other), model).state_dict()["sha256"] != state["sha256"]


def given(**settings: Any) -> Lessons:
    return Lessons(Teacher(**settings), perceptron(8))


@pytest.mark.parametrize(
    ("saved", "resumed"),
    [
        (given(), given(model=perceptron(12))),
        (given(model=perceptron(12)), given()),
        (given(model=perceptron(12)), given(model=perceptron(10))),
        (given(), given(weight=0.7)),
        (given(), given(temperature=3.0)),
        (given(), None),
        (None, given()),
        (Lessons(Teacher(), perceptron(9)), given()),
    ],
)
def test_another_teacher_is_refused_on_resuming(saved: Lessons | None, resumed: Lessons | None):
    state = None if saved is None else saved.state_dict()
    with pytest.raises(PrunerError, match="teacher") as caught:
        check_same_teaching(resumed, state)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "state", [3, {"weight": 0.5}, {"weight": 0.5, "temperature": 2.0, "weights": {"0.weight": 1}}]
)
def test_a_damaged_state_is_refused(state: Any):
    with pytest.raises(PrunerError, match="another kind of teacher"):
        given().check_state(state)


@pytest.mark.parametrize(
    ("teacher", "words"),
    [
        ("self", "teacher must be True, a trained nn.Module or a trainonce.Teacher, got 'self'"),
        (nn.ReLU, "teacher is the class ReLU. Pass an instance"),
        (1, "teacher must be True"),
    ],
)
def test_what_is_no_teacher_is_refused(teacher: Any, words: str):
    model = perceptron(8)
    with pytest.raises(SettingError, match=words):
        attached(model, torch.optim.SGD(model.parameters(), lr=0.1), 400, teacher=teacher)


def test_the_model_itself_is_no_teacher():
    model = perceptron(8)
    with pytest.raises(SettingError, match="shares weights with the model"):
        attached(model, torch.optim.SGD(model.parameters(), lr=0.1), 400, teacher=model)


def test_a_teacher_on_another_device_is_refused():
    with pytest.raises(SettingError, match="the teacher is on meta, and the model on cpu"):
        Lessons(Teacher(model=perceptron(12).to("meta")), perceptron(8))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"weight": 0}, "a teacher's weight must be a number above 0 and at most 1, got 0"),
        ({"weight": 1.5}, "at most 1, got 1.5"),
        ({"temperature": -1}, "a teacher's temperature must be"),
        ({"model": 3}, "a teacher's model must be an nn.Module, got 3"),
        ({"loss": "mse"}, "a teacher's loss must be a function"),
    ],
)
def test_bad_settings_of_a_teacher_are_refused(arguments: dict[str, Any], words: str):
    with pytest.raises(SettingError, match=words):
        trainonce.Teacher(**arguments)


@pytest.mark.parametrize("loss", [lambda mine, wanted: mine - wanted, lambda mine, wanted: 3])
def test_a_loss_that_is_no_scalar_is_refused(loss: Any):
    student, images = perceptron(8), batch(0)[0]
    with pytest.raises(SettingError, match="must return a scalar"):
        Lessons(Teacher(loss=loss), student).distance(student(images), (images,), {})


def test_a_loss_of_ones_own():
    student, teacher, images = perceptron(8), perceptron(12), batch(0)[0]
    found = Lessons(Teacher(model=teacher, loss=mse_loss), student).distance(student(images), (images,), {})
    assert torch.equal(found, mse_loss(student(images), teacher.eval()(images)))
