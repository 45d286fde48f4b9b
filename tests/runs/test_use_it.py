"""The lines to copy work as they are, for the run that the page is about."""

import shlex
import shutil
from pathlib import Path

import pytest
import torch

import trainonce
from support.finished import make_report, make_run
from trainonce.cli import main
from trainonce.runs.report.card import render_card
from trainonce.runs.report.page import render_page
from trainonce.runs.report.usage import usage_of
from trainonce.runs.report.writing import read_report, write_report
from trainonce.storage.artifact import load
from trainonce.storage.artifact.about import About, Preprocessing
from trainonce.zoo.sources import Build, build


def snippets(report: dict) -> dict[str, str]:
    usage = usage_of(report)
    assert usage is not None
    return {snippet.title: snippet.text for snippet in usage.snippets}


def test_the_lines_of_a_run_of_the_command_work_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = make_run(tmp_path / "run")
    monkeypatch.chdir(folder)
    found = snippets(read_report(folder) | {"data": {"num_classes": 10, "image_size": 8}})
    names: dict = {}
    exec(found["Load it"], names)
    image = torch.randn(2, 3, 8, 8)
    dense = build("cifar:resnet20", wanted=Build(num_classes=10, image_size=8)).model
    assert torch.equal(names["small"](image), load(folder / "small", into=dense).eval()(image))
    assert not names["small"].training
    export = [*shlex.split(found["Export it to ONNX"])[1:], "--format", "safetensors"]
    assert main(export) == 0
    bench = shlex.split(found["Time it against the dense model"])[1:]
    assert main([*bench, "--engine", "eager", "-b", "1", "--seconds", "0.01"]) == 0
    assert main([*shlex.split(found["Train it again"])[1:], "--print-config"]) == 0
    assert "model: cifar:resnet20" in capsys.readouterr().out


def card_code(report: dict) -> str:
    card = render_card(report)
    return card.partition("```python\n")[2].partition("```")[0]


def test_the_code_on_the_card_runs_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = make_run(tmp_path / "run")
    fed = Preprocessing(mean=(0.5,) * 3, std=(0.2,) * 3, size=8, shorter_side=9)
    about = About(name="cifar:resnet20", classes=tuple("abcdefghij"), preprocessing=fed)
    small = load(folder / "small", into=build("cifar:resnet20").model)
    shutil.rmtree(folder / "small")
    trainonce.save(small, folder / "small", classes=about.classes, preprocessing=fed)
    report = read_report(folder) | {"about": about.to_data()}
    write_report(folder, report)
    assert "its shorter side resized to 9, the center 8 x 8 cut out (bilinear)" in card_code(report)
    assert "a, b, c, d" in (folder / "small" / "README.md").read_text()
    monkeypatch.chdir(folder / "small")
    torch.manual_seed(0)
    names: dict = {}
    exec(card_code(report), names)
    assert capsys.readouterr().out.strip() in about.classes
    assert torch.equal(names["small"](names["image"][None]), small.eval()(names["image"][None]))
    monkeypatch.chdir(folder)
    exec(snippets(report)["Load it"], names)
    assert "zoo" not in snippets(report)["Load it"]


@pytest.mark.parametrize("about", [None, {}, {"name": "nets.mine:build"}, {"name": 'x:"); import os'}])
def test_a_card_without_a_known_name_has_no_code(about: dict | None):
    assert card_code(make_report() | {"about": about}) == ""
    assert "trainonce.load(FOLDER, into=model)" in render_card(make_report() | {"about": about})


def test_a_model_of_ones_own_is_imported_by_its_name():
    report = make_report()
    report["config"]["model"] = "nets.mine:build_it"
    found = snippets(report)
    assert "from nets.mine import build_it" in found["Load it"]
    assert found["Export it to ONNX"].endswith("--trust-code")


@pytest.mark.parametrize("name", ["a b:c", 'nets:f();import os"', 'timm:x"); import os', "<script>:x"])
def test_a_name_that_is_no_name_gets_into_no_line_to_copy(name: str):
    report = make_report() | {"data": {"num_classes": 10, "image_size": 8}}
    report["config"]["model"] = name
    assert "Load it" not in snippets(report)
    assert all("import os" not in text for text in snippets(report).values())
    assert "<script>" not in render_page(report)


def test_a_run_of_fit_names_what_only_its_author_knows():
    report = make_report()
    report["config"] = {"model": "Net", "keep_flops": 0.5}
    found = snippets(report)
    assert "Net" in found["Load it"]
    assert "--model" in found["Export it to ONNX"]
    assert "Train it again" not in found


def test_a_run_of_fit_without_classes_is_exported_in_python():
    report = make_report()
    report["config"] = {"model": "Net", "keep_flops": 0.5}
    report["after"] |= {"top1": None, "metrics": {"mae": 0.5}}
    assert snippets(report).keys() == {"Load it", "Export it to ONNX"}
    assert "torch.onnx.export(small, (inputs,)" in snippets(report)["Export it to ONNX"]
    report.pop("baseline", None)
    assert "train one with <code>keep_flops=1</code>" in render_page(report)
    card = render_card(report)
    assert card.startswith("# Net, pruned\n")
    assert "validated on one data set only" in card
    assert "tenths of a point" not in card


def test_before_there_is_a_small_model_there_is_nothing_to_use():
    assert usage_of(make_report() | {"before": None}) is None
    assert "Use it" not in render_page(make_report() | {"before": None})


class Photos(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Noise, with the attribute that torchvision's data sets have."""

    classes = ("cat", "dog", "cow")

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(index)), index % 3


def test_a_run_of_fit_finds_the_name_of_a_model_and_the_classes_of_its_data(tmp_path: Path):
    timm = pytest.importorskip("timm")
    train = torch.utils.data.DataLoader(torch.utils.data.Subset(Photos(), range(32)), batch_size=8)
    model = timm.create_model("test_resnet", num_classes=3, drop_path_rate=0.1)
    out = tmp_path / "run"
    trainonce.fit(model, (train, Photos()), keep_flops=0.5, epochs=3, out=out, quiet=True)
    small = trainonce.load(out / "small")
    assert trainonce.about_of(small).classes == Photos.classes
    card = (out / "small" / "README.md").read_text()
    assert "cat, dog, cow." in card
    assert 'small = trainonce.load(".")' in card
    assert snippets(read_report(out))["Load it"].endswith('small = trainonce.load("RUN/small")')
