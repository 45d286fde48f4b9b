"""A teacher in the real Lightning `Trainer`, with automatic and with manual optimization."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, softmax

import trainonce
from support.bits import digest
from support.ranks import run_two
from trainonce.errors import PrunerError, SettingError

pytest.importorskip("lightning", reason="needs lightning")

from integrations.lightning_runs import (
    STEPS,
    CallsItsPart,
    Kill,
    KilledError,
    Net,
    StepsByHand,
    loader,
    make_callback,
    make_trainer,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning"),
    # Lightning's advice on workers, accelerators and folders.
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    # Lightning 2.6 uses what torch 2.15 has deprecated.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


def other() -> nn.Module:
    """The layers of the tests' module, wider and with weights of their own."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 4)).eval()


def taught_by_hand(points: Tensor, labels: Tensor, outputs: Tensor, teacher: nn.Module) -> Tensor:
    """With the default weight and temperature."""
    with torch.no_grad():
        wanted = softmax(teacher(points) / 2, dim=1)
    apart = (wanted * (wanted.log() - log_softmax(outputs / 2, dim=1))).sum(1).mean()
    return 0.5 * cross_entropy(outputs, labels) + 0.5 * 4 * apart


class TaughtByHand(Net):
    """Computes what the callback should add."""

    def __init__(self, teacher: nn.Module) -> None:
        super().__init__()
        # In a list, so that it is no part of this module.
        self.others = [teacher]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        points, labels = batch
        return taught_by_hand(points, labels, self(points), self.others[0])


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_loss_is_the_one_by_hand(accumulated: int, tmp_path: Path):
    found = []
    for net, teacher in ((Net(), other()), (TaughtByHand(other()), None)):
        # The whole budget: sums that are rounded in another order could make other masks.
        callback = make_callback(teacher=teacher, keep_flops=1)
        trainer = make_trainer(
            tmp_path / str(len(found)),
            callback,
            max_epochs=4 * accumulated,
            accumulate_grad_batches=accumulated,
        )
        trainer.fit(net, loader())
        assert "training_step" not in vars(net), "nothing of ours stays in the module"
        found.append(net)
    for mine, theirs in zip(*(net.parameters() for net in found), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Net, Path]:
    """One undisturbed run that is taught by itself."""
    out = tmp_path_factory.mktemp("taught")
    net, callback = Net(), make_callback(teacher=True)
    make_trainer(out, callback).fit(net, loader(), loader(16))
    assert len(callback.pruner.cuts) == 2
    return net, out


@pytest.mark.parametrize("killed_in", [1, 2, 3])
def test_a_killed_run_resumes_to_the_same_bits(whole: tuple[Net, Path], tmp_path: Path, killed_in: int):
    with pytest.raises(KilledError):
        make_trainer(tmp_path, make_callback(teacher=True), Kill(killed_in)).fit(Net(), loader(), loader(16))
    resumed, callback = Net(), make_callback(teacher=True)
    make_trainer(tmp_path, callback).fit(
        resumed,
        loader(),
        loader(16),
        ckpt_path=str(tmp_path / f"epoch={killed_in - 1}.ckpt"),
        weights_only=True,
    )
    assert callback.pruner.num_steps == STEPS
    assert digest(resumed) == digest(whole[0])


def test_only_checkpoints_to_train_on_have_the_teacher(whole: tuple[Net, Path], tmp_path: Path):
    def saved(path: Path) -> dict[str, Any]:
        return torch.load(path / "epoch=3.ckpt", weights_only=True)["trainonce"]["pruner"]

    assert "weights" in saved(whole[1])["teacher"]
    make_trainer(tmp_path, make_callback(teacher=True), only_weights=True).fit(Net(), loader())
    assert "teacher" not in saved(tmp_path)


def test_a_part_and_a_step_that_returns_a_dict(tmp_path: Path):
    plain, taught = CallsItsPart(), CallsItsPart()
    for net, teacher in ((plain, None), (taught, other())):
        make_trainer(tmp_path / str(teacher is None), make_callback(teacher=teacher)).fit(net, loader())
    assert digest(plain) != digest(taught)


def test_two_processes_hear_the_teacher_through_the_cuts_and_resume(tmp_path: Path):
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    run_two(Path(__file__).with_name("lightning_runs.py"), str(tmp_path), "taught")
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    # A step that never asked the teacher would have been refused.
    assert first == second
    assert (first["whole"]["cuts"], first["whole"]["steps"]) == (2, STEPS)
    assert first["from 0"] == first["from 2"] == first["whole"]


class TaughtSteps(StepsByHand):
    """Manual optimization that asks the teacher itself, and returns its loss to be logged."""

    callback: Any
    asks = True

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        points, labels = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        outputs = self(points)
        loss = cross_entropy(outputs, labels)
        if self.asks:
            loss = self.callback.pruner.taught(loss, outputs, points)
        self.manual_backward(loss)
        optimizer.step()
        return loss.detach()


def loss_of(module: Any, batch: Any) -> Tensor:
    return cross_entropy(module(batch[0]), batch[1])


def test_steps_by_hand_ask_the_teacher_themselves(tmp_path: Path):
    net = TaughtSteps()
    net.callback = callback = make_callback(teacher=other(), loss=loss_of)
    asked: list[int] = []
    callback._request.options["teacher"].register_forward_hook(lambda *_: asked.append(1))
    make_trainer(tmp_path, callback).fit(net, loader())
    assert len(callback.pruner.cuts) == 2
    num_updates = len(asked) - STEPS
    assert 0 < num_updates < STEPS, "once per step, and for the controller"


def test_steps_by_hand_that_forget_the_teacher_are_told(tmp_path: Path):
    net = TaughtSteps()
    net.asks = False
    with pytest.raises(PrunerError, match=r"the loss doesn't use it.*pruner\.taught") as caught:
        make_trainer(tmp_path, make_callback(teacher=other(), loss=loss_of)).fit(net, loader())
    assert "\n" not in str(caught.value)


def test_bad_teachers_are_refused_in_one_line(tmp_path: Path):
    with pytest.raises(SettingError, match="teacher must be True, a trained"):
        make_callback(teacher="self")
    net = Net()
    with pytest.raises(SettingError, match="shares weights with the model"):
        make_trainer(tmp_path, make_callback(teacher=net)).fit(net, loader())
    teacher = trainonce.Teacher(loss=lambda mine, wanted: mine - wanted)
    with pytest.raises(SettingError, match="a teacher's loss must return a scalar"):
        make_trainer(tmp_path, make_callback(teacher=teacher)).fit(Net(), loader())
