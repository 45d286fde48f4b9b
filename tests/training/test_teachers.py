"""A run of `fit` with a teacher: it resumes to the same bits, says who teaches, and refuses the rest."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss

from support.runs import (
    Counter,
    Listener,
    Net,
    interrupt,
    make_data,
    make_net,
    make_settings,
    same_weights,
    weights,
)
from trainonce import Teacher
from trainonce.cli import main
from trainonce.errors import RunInterruptedError, SettingError, TrainonceError
from trainonce.runs.folder import read_config
from trainonce.training import Settings, fit
from trainonce.training.loop.evaluation import CrossEntropy
from trainonce.training.loop.mixing import Mixing
from trainonce.training.loop.objective import Objective
from trainonce.training.loop.precision import Precision
from trainonce.training.loop.processes import Processes
from trainonce.training.loop.surroundings import Surroundings
from trainonce.training.teachers import lessons_for
from trainonce.zoo.sources import Build, build


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.save(make_net(5).state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def run(*, teacher: Any = None, net: nn.Module | None = None, **changes: Any) -> Any:
    known = {name: changes.pop(name) for name in ("out", "resume", "loss", "view") if name in changes}
    settings = changes.pop("settings", None) or make_settings(**{"pretrained": True, "lr": 0.05} | changes)
    known.setdefault("quiet", "view" not in known)
    return fit(net or make_net(), make_data(), settings=settings, teacher=teacher, **known)


def taught_settings(**changes: Any) -> Settings:
    return make_settings(
        pretrained=True, lr=0.05, teacher=True, teacher_weight=0.75, teacher_temperature=3.0, **changes
    )


@pytest.mark.parametrize("stop", [3, 11, 20], ids=["before the cuts", "between", "after"])
@pytest.mark.parametrize("kind", ["itself", "another"])
def test_a_stopped_run_ends_with_the_same_bits(kind: str, stop: int, file: Path, tmp_path: Path):
    """Without the file: the checkpoint has the teacher's weights, too."""
    teacher = True if kind == "itself" else make_net(9)
    settings = make_settings(
        weights=str(file), lr=0.05, save_epochs=1, first_cut_from=0.35, settle_from=0.6, round_to=1
    )
    whole = run(teacher=teacher, settings=settings)
    with pytest.raises(RunInterruptedError):
        run(
            teacher=teacher,
            settings=settings,
            out=tmp_path / "run",
            loss=Counter({stop}, interrupt),
        )
    file.unlink()
    again = run(
        teacher=teacher,
        settings=settings,
        net=make_net(3),
        out=tmp_path / "run",
        resume=True,
        loss=Counter(set(), interrupt),
    )
    assert same_weights(whole.model, again.model)


def test_the_dense_model_is_taught_as_well():
    taught, plain = (run(teacher=teacher, keep_flops=1, epochs=2) for teacher in (make_net(9), None))
    assert not same_weights(taught.model, plain.model)


def test_true_is_a_copy_of_the_first_weights_and_another_model_stays_as_it_is():
    teacher = make_net()
    before = weights(teacher)
    itself, other = run(teacher=True), run(teacher=teacher)
    assert same_weights(itself.model, other.model)
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(teacher).items())
    assert itself.report["teacher"] == "a frozen copy of the initial model, weight 0.5, temperature 2"
    assert other.report["teacher"] == "Net, weight 0.5, temperature 2"


def test_who_teaches_is_said_and_recorded(tmp_path: Path):
    view = Listener()
    run(
        teacher=Teacher(model=make_net(9), weight=0.25, loss=mse_loss),
        epochs=2,
        out=tmp_path / "run",
        view=view,
    )
    assert "teacher: Net, weight 0.25, with a loss of your own" in view.lines
    config = read_config(tmp_path / "run")
    assert (config["teacher"], config["teacher_weight"], config["teacher_loss"]) == ("Net", 0.25, "mse_loss")
    assert len(config["teacher_sha256"]) == 64
    page = (tmp_path / "run" / "report.html").read_text()
    card = (tmp_path / "run" / "small" / "README.md").read_text()
    assert "Distilled from Net, weight 0.25, with a loss of your own." in page
    assert "Distilled from Net, weight 0.25, with a loss of your own." in card


def test_true_and_a_model_take_weight_and_temperature_from_the_settings():
    view = Listener()
    run(teacher=make_net(9), epochs=2, teacher_weight=0.75, teacher_temperature=3.0, view=view)
    assert "teacher: Net, weight 0.75, temperature 3" in view.lines
    inside = run(teacher=None, epochs=2, settings=taught_settings(epochs=2))
    outside = run(teacher=Teacher(weight=0.75, temperature=3.0), epochs=2)
    assert same_weights(inside.model, outside.model)


def where() -> Surroundings:
    return Surroundings(torch.device("cpu"), Precision("cpu", None), Processes(), torch.contiguous_format)


@pytest.mark.parametrize("mixing", [None, Mixing(0.4, 0.0, 4)], ids=["plain", "mixup"])
def test_the_loss_is_the_one_by_hand_on_what_the_model_saw(mixing: Mixing | None):
    model, teacher = make_net().eval(), make_net(9).eval()
    lessons = lessons_for(model, Settings(), Teacher(model=teacher, weight=0.3, temperature=3.0))
    seen: list[Tensor] = []
    teacher.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    images, labels = make_data()[0]
    found = Objective(CrossEntropy(), where(), mixing, lessons)(model, images, labels, seed=7)
    mixed, targets = (images, labels) if mixing is None else mixing(images, labels, 7)
    assert torch.equal(seen[0], mixed)
    outputs = model(mixed)
    with torch.no_grad():
        wanted = teacher(mixed)
    apart = kl_div(
        log_softmax(outputs / 3, 1), log_softmax(wanted / 3, 1), log_target=True, reduction="batchmean"
    )
    by_hand = 0.7 * cross_entropy(outputs, targets) + 0.3 * 9 * apart
    assert torch.allclose(found, by_hand, rtol=1e-5)


def test_accumulated_batches_are_taught_like_one():
    """In eval-like layers only: no batch norm and no dropout."""

    def trained(accumulate: int) -> nn.Module:
        torch.manual_seed(0)
        layers = [nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 4)]
        model = nn.Sequential(*layers).double()
        (images, labels), (others, answers) = make_data()
        data = (images.double(), labels), (others.double(), answers)
        settings = make_settings(pretrained=True, lr=0.05, epochs=2, keep_flops=1, accumulate=accumulate)
        teacher = copy.deepcopy(model)
        nn.init.normal_(teacher[1].weight, std=0.1, generator=torch.Generator().manual_seed(3))
        return fit(model, data, settings=settings, teacher=teacher, quiet=True).model

    one, three = trained(1), trained(3)
    for mine, other in zip(one.parameters(), three.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-9, atol=1e-12)


def test_another_teacher_is_refused_on_resuming(tmp_path: Path):
    with pytest.raises(RunInterruptedError):
        run(teacher=make_net(9), out=tmp_path / "run", loss=Counter({9}, interrupt))
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    for teacher, words in (
        (make_net(8), "teacher_sha256 is "),
        (None, "teacher is "),
        (Teacher(model=make_net(9), weight=0.9), "teacher_weight is 0.9"),
        (Teacher(model=make_net(9), loss=mse_loss), "teacher_loss is "),
    ):
        with pytest.raises(SettingError, match=words) as caught:
            run(teacher=teacher, out=tmp_path / "run", resume=True, loss=Counter(set(), interrupt))
        assert "\n" not in str(caught.value)
    assert kept == sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)[:, 0]


@pytest.mark.parametrize(
    ("teacher", "changes", "words"),
    [
        ("self", {}, "teacher must be True, a trained"),
        (True, {"pretrained": False}, "this run starts from scratch"),
        (Net, {}, "teacher is the class Net"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 7)), {}, r"shape \(16, 7\), and the model's \(16, 4\)"),
        (
            make_net(),
            {"settings": taught_settings()},
            "the settings have a teacher, and teacher is given, too",
        ),
        (
            Teacher(model=make_net(), weight=0.3),
            {"teacher_weight": 0.7},
            "teacher_weight is 0.7 in the settings, and 0.3 in the Teacher",
        ),
    ],
    ids=["text", "scratch", "class", "other classes", "two", "two weights"],
)
def test_what_can_not_teach_is_refused(teacher: Any, changes: dict[str, Any], words: str, tmp_path: Path):
    with pytest.raises(SettingError, match=words) as caught:
        run(teacher=teacher, out=tmp_path / "run", **changes)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_numbers_need_a_loss_of_their_own():
    (images, _), (others, _) = make_data()
    data = (images, images.mean(dim=(1, 2, 3))), (others, others.mean(dim=(1, 2, 3)))
    settings = make_settings(pretrained=True, lr=0.01, epochs=2)
    with pytest.raises(SettingError, match="the targets are not classes"):
        fit(Regressor(), data, settings=settings, loss=mse_loss, teacher=True, quiet=True)
    teacher = Teacher(loss=mse_loss)
    result = fit(Regressor(), data, settings=settings, loss=mse_loss, teacher=teacher, quiet=True)
    assert result.report["after"]["macs"] <= 0.5 * result.report["before"]["macs"]


def test_a_new_head_is_no_teacher(tmp_path: Path):
    head = {"head.weight": torch.zeros(9, 24), "head.bias": torch.zeros(9)}
    torch.save(make_net().state_dict() | head, tmp_path / "nine.pth")
    settings = make_settings(weights=str(tmp_path / "nine.pth"), teacher=True)
    with pytest.raises(
        SettingError, match=r"whose last layer is new and untrained \(new head head: 4 outputs"
    ) as caught:
        run(settings=settings, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    run(settings=replace(settings, teacher=False, epochs=2), teacher=make_net(9))


def test_the_command_trains_with_a_teacher_and_keeps_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    torch.save(build("cifar:resnet20", wanted=Build(num_classes=10)).model.state_dict(), "donor.pth")
    words = ["train", "--model", "cifar:resnet20", "--data", "digits", "--keep-flops", "0.5", "--epochs", "1"]
    words += ["--batch-size", "256", "--teacher", "--teacher-weight", "0.25"]
    assert main([*words, "--out", "scratch"]) == 2
    assert "this run starts from scratch" in capsys.readouterr().err
    assert main([*words, "--weights", "donor.pth", "--out", "run"]) == 0
    said = capsys.readouterr().err
    assert "teacher: a frozen copy of the initial model, weight 0.25, temperature 2" in said
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (config["teacher"], config["teacher_weight"]) == (True, 0.25)
    for name, value in (("teacher", False), ("teacher_weight", 0.5), ("teacher_temperature", "warm")):
        Path("run/config.yaml").write_text(yaml.safe_dump(config | {name: value}))
        assert main(["train", "--resume", "run"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"trainonce: {name} is ")
        assert "was started with" in said
        assert said.count("\n") == 1


@pytest.mark.parametrize("value", ["0", "1.5", "much"])
def test_the_command_refuses_a_weight_that_is_no_share(value: str, capsys: pytest.CaptureFixture[str]):
    words = ["train", "--model", "cifar:resnet20", "--data", "digits", "--keep-flops", "0.5", "--pretrained"]
    with pytest.raises((SystemExit, TrainonceError)) as caught:
        raise SystemExit(main([*words, "--teacher", "--teacher-weight", value, "--print-config"]))
    assert caught.value.code == 2
    assert "teacher" in capsys.readouterr().err
