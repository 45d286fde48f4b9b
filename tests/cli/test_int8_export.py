"""`export --int8` and `inspect --latency`: a table, kept in the report; bad input is one line and no file."""

import json
from pathlib import Path

import pytest

from support.commands import refused
from trainonce.cli import main
from trainonce.deployment import quantizing

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)


def test_int8_is_written_shown_and_kept_in_the_report(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(quantizing, "SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "80")
    before = json.loads((copied / "report.json").read_text())
    assert main(["export", str(copied), "--int8"]) == 0
    out = capsys.readouterr().out
    assert "small int8" in out
    assert "\u2026" not in out
    after = json.loads((copied / "report.json").read_text())
    found = after.pop("int8")
    assert after == before
    # ONNX Runtime evaluates as the run did.
    assert found["standings"][1]["top1"] == pytest.approx(before["after"]["top1"], abs=1e-3)
    assert found["standings"][2]["bytes"] == (copied / "model.int8.onnx").stat().st_size
    assert "small int8" in (copied / "report.html").read_text()
    assert "exists already" in refused(["export", str(copied), "--int8"], capsys)
    # Written again, as `trainonce report` does, the page still has it.
    assert main(["report", str(copied)]) == 0
    assert "small int8" in (copied / "report.html").read_text()


def test_bad_input_is_one_line_and_writes_nothing(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before = sorted(copied.iterdir())
    assert "Pass --format onnx" in refused(["export", str(copied), "--int8", "--format", "pt2"], capsys)
    foreign = tmp_path / "foreign.onnx"
    foreign.write_bytes(b"onnx")
    assert "there is no run in" in refused(["export", str(foreign), "--int8"], capsys)
    moved = ["export", str(copied), "--int8", "--data", f"folder:{tmp_path / 'moved'}"]
    assert "there is no folder" in refused(moved, capsys)
    assert sorted(copied.iterdir()) == before


def test_latency_of_each_layer_is_shown_beside_its_flops(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["inspect", "cifar:resnet20", "--input", "1x3x8x8", "--latency"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "stages.2.2.conv2" in out
    assert "eager with 1 thread" in out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engine"] == "eager"
    assert {"name", "kind", "count", "macs", "milliseconds"} == found["layers"][0].keys()
    assert "--engine is for --latency" in refused(["inspect", "cifar:resnet20", "--engine", "eager"], capsys)
    assert "Omit --protect" in refused([*words, "--protect", "fc"], capsys)
    assert "compiled has no milliseconds per layer" in refused([*words, "--engine", "compiled"], capsys)
