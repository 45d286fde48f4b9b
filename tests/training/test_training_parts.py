"""Laws of what a training run is made of: order, learning rate, mixing, averaging, formats, signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import trainonce
from support.runs import make_net
from trainonce.errors import SettingError
from trainonce.training.batches.order import Order, draw_controller_samples, share_of
from trainonce.training.batches.sources import TensorSamples
from trainonce.training.loop.average import Average
from trainonce.training.loop.evaluation import CrossEntropy, Measuring, evaluate
from trainonce.training.loop.learning_rate import learning_rate
from trainonce.training.loop.mixing import Mixing
from trainonce.training.loop.precision import Precision, choose_precision
from trainonce.training.loop.processes import Processes, choose_device
from trainonce.training.loop.signals import StopFlag
from trainonce.training.settings import Settings


@pytest.mark.parametrize(("num_samples", "batch_size"), [(20, 5), (23, 5), (5, 5), (7, 4)])
def test_an_epoch_is_a_permutation_without_its_rest(num_samples: int, batch_size: int):
    order = Order(torch.arange(num_samples), batch_size, seed=1)
    for epoch in range(3):
        seen = torch.cat(
            [order.batch(epoch * order.steps_per_epoch + i) for i in range(order.steps_per_epoch)]
        )
        assert len(seen.unique()) == len(seen) == num_samples // batch_size * batch_size


def test_any_step_can_be_asked_for_at_any_time():
    one, other = Order(torch.arange(50), 8, seed=4), Order(torch.arange(50), 8, seed=4)
    forwards = {step: one.batch(step) for step in range(20)}
    for step in reversed(range(20)):
        assert torch.equal(other.batch(step), forwards[step])
    assert not torch.equal(forwards[0], forwards[one.steps_per_epoch])
    assert one.look(0) == one.look(1) != one.look(one.steps_per_epoch)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_the_shares_of_all_processes_are_the_batch(world_size: int):
    batch = Order(torch.arange(30), 8, seed=0).batch(2)
    assert torch.equal(torch.cat([share_of(batch, rank, world_size) for rank in range(world_size)]), batch)


def test_the_controller_sees_a_fixed_share_of_the_data():
    samples = draw_controller_samples(1000, 0.05, seed=3)
    assert len(samples.unique()) == 50
    assert torch.equal(samples, draw_controller_samples(1000, 0.05, seed=3))
    assert not torch.equal(samples, draw_controller_samples(1000, 0.05, seed=4))
    assert len(draw_controller_samples(10, 0.05, seed=3)) == 2


def rates(settings: Settings, steps_per_epoch: int = 10) -> list[float]:
    return [
        learning_rate(settings, step, steps_per_epoch) for step in range(settings.epochs * steps_per_epoch)
    ]


def test_warm_up_rises_and_cosine_falls_to_the_end():
    found = rates(Settings(epochs=20, lr=0.4, warmup_epochs=3, min_lr=0.01))
    assert found[:30] == sorted(found[:30])
    assert found[30] == max(found) == pytest.approx(0.4)
    assert found[30:] == sorted(found[30:], reverse=True)
    assert found[-1] == pytest.approx(0.01, abs=1e-3)
    middle = 30 + 170 // 2
    assert found[middle] == pytest.approx((0.4 + 0.01) / 2, abs=1e-3)


def test_steps_lower_the_rate_at_their_epochs():
    found = rates(Settings(epochs=10, lr=1.0, sched="step", decay_epochs=(4.0, 7.5), decay_rate=0.5))
    assert found == [1.0] * 40 + [0.5] * 35 + [0.25] * 25


def test_a_constant_rate_is_constant():
    assert set(rates(Settings(epochs=3, lr=0.3, sched="constant"))) == {0.3}


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.4, 0.0), (0.0, 1.0), (0.4, 1.0)])
def test_shares_of_classes_are_shares_of_pixels(mixup: float, cutmix: float):
    labels = torch.tensor([0, 1, 2, 3])
    images = torch.eye(4).view(4, 4, 1, 1).expand(4, 4, 8, 8)
    for seed in range(20):
        mixed, shares = Mixing(mixup, cutmix, 4)(images, labels, seed)
        assert torch.allclose(shares.sum(dim=1), torch.ones(4))
        assert torch.allclose(mixed.mean(dim=(2, 3)), shares, atol=1e-6)


def test_without_mixing_a_batch_is_itself():
    images = torch.randn(2, 3, 4, 4)
    mixed, shares = Mixing(0.0, 0.0, 3)(images, torch.tensor([2, 0]), 0)
    assert torch.equal(mixed, images)
    assert shares.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_the_average_follows_its_formula_and_the_cut():
    net = make_net()
    average = Average(net, decay=0.15)
    before = net.head.weight.clone()
    with torch.no_grad():
        net.head.weight += 1
    average.update(net)
    assert torch.allclose(average.model.head.weight, before + 0.85)
    partition = trainonce.inspect(net, torch.randn(2, 3, 8, 8))
    plan = trainonce.Plan.random(partition, keep=0.5)
    trainonce.cut(net, plan)
    average.cut(plan)
    average.update(net)
    assert [p.shape for p in average.model.parameters()] == [p.shape for p in net.parameters()]
    other = Average(net, decay=0.15)
    other.load_state_dict(average.state_dict())
    assert torch.equal(other.model.head.weight, average.model.head.weight)


def test_scores_count_every_sample_once():
    class Known(nn.Module):
        def forward(self, x):
            return x

    logits = torch.randn(37, 8)
    targets = torch.randint(0, 8, (37,))
    samples = TensorSamples(logits, targets)
    options = {
        "device": torch.device("cpu"),
        "precision": Precision("cpu", None),
        "loss": CrossEntropy(),
        "processes": Processes(),
    }
    for batch_size in (1, 5, 37, 100):
        scores = evaluate(Known(), samples, Measuring(batch_size=batch_size, **options))
        assert scores.num_samples == 37
        assert scores.top1 == pytest.approx(100 * (logits.argmax(1) == targets).float().mean().item())
        assert scores.top5 == pytest.approx(
            100 * (logits.topk(5).indices == targets[:, None]).any(1).float().mean().item()
        )
        assert scores.loss == pytest.approx(nn.functional.cross_entropy(logits, targets).item(), rel=1e-5)


def test_formats_that_a_device_does_not_have_are_refused():
    cpu = torch.device("cpu")
    assert choose_precision(cpu, amp=False, amp_dtype="float16").dtype is None
    with pytest.raises(SettingError, match="float16 needs a GPU"):
        choose_precision(cpu, amp=True, amp_dtype="float16")


def test_bfloat16_needs_a_cpu_that_has_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainonce.training.loop.precision._cpu_computes_bfloat16", lambda: False)
    with pytest.raises(SettingError, match="AVX-512"):
        choose_precision(torch.device("cpu"), amp=True, amp_dtype="bfloat16")
    monkeypatch.setattr("trainonce.training.loop.precision._cpu_computes_bfloat16", lambda: True)
    assert choose_precision(torch.device("cpu"), amp=True, amp_dtype="bfloat16").dtype is torch.bfloat16


def test_only_float16_is_scaled():
    assert not Precision("cpu", torch.bfloat16).scaler().is_enabled()
    assert not Precision("cpu", None).scaler().is_enabled()


@pytest.mark.parametrize("name", ["tpu", "", "cuda:99", "xla", "gpu"])
def test_a_device_that_is_not_there_is_refused(name: str):
    with pytest.raises(SettingError, match="device"):
        choose_device(name)


def test_the_first_signal_is_remembered_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopFlag() as stop:
        assert not stop.is_set
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 5
        while not stop.is_set and time.monotonic() < deadline:
            time.sleep(0.01)
        assert stop.is_set
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_second_signal_ends_the_process():
    source = (
        "import os, signal\nfrom trainonce.training.loop.signals import StopFlag\nwith StopFlag():\n"
        + "    os.kill(os.getpid(), 15)\n" * 2
    )
    done = subprocess.run(
        [sys.executable, "-c", source], check=False, timeout=120, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == -signal.SIGTERM
