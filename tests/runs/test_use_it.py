"""The lines to copy work as they are, for the run that the page is about."""

import shlex
from pathlib import Path

import pytest
import torch

from support.finished import make_report, make_run
from trainonce.cli import main
from trainonce.runs.report.page import render_page
from trainonce.runs.report.usage import usage_of
from trainonce.runs.report.writing import read_report
from trainonce.storage.artifact import load
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


def test_before_there_is_a_small_model_there_is_nothing_to_use():
    assert usage_of(make_report() | {"before": None}) is None
    assert "Use it" not in render_page(make_report() | {"before": None})
