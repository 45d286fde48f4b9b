"""`export` and `bench` on a finished run: other formats say the same, both models are timed in turns."""

import json
from pathlib import Path

import onnxruntime
import pytest
import torch

import trainonce
from support.disks import fill, mounted
from trainonce.cli import main
from trainonce.data.catalogue import open_data
from trainonce.zoo.residual import thin_resnet


def test_onnx_runtime_agrees_on_every_sample(copied: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(copied), "--format", "onnx"]) == 0
    assert "same classes on all 360" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(copied / "model.onnx", providers=["CPUExecutionProvider"])
    images, labels = next(iter(open_data("digits").validation.batches([(torch.arange(360), 0)])))
    (scores,) = session.run(None, {"images": images.numpy()})
    right = 100 * (torch.from_numpy(scores).argmax(1) == labels).float().mean().item()
    assert right == pytest.approx(json.loads((copied / "report.json").read_text())["after"]["top1"], abs=1e-3)
    (one,) = session.run(None, {"images": images[:1].numpy()})
    assert one.shape == (1, 10)
    assert main(["export", str(copied), "--format", "onnx"]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "file"), [("pt2", "model.pt2"), ("safetensors", "exported/model.safetensors")]
)
def test_other_formats_are_written_and_compared(
    copied: Path, name: str, file: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["export", str(copied), "--format", name]) == 0
    assert "same classes on all 360" in capsys.readouterr().out
    assert (copied / file).is_file()


def test_the_written_program_gives_the_same_scores_when_it_is_read(copied: Path):
    assert main(["export", str(copied), "--format", "pt2"]) == 0
    images, _ = next(iter(open_data("digits").validation.batches([(torch.arange(360), 0)])))
    small = trainonce.load(copied / "small", into=thin_resnet(20, 10)).eval()
    # Our own file, written a moment ago: only such a one may be read.
    program = torch.export.load(copied / "model.pt2").module()
    with torch.no_grad():
        assert torch.equal(program(images), small(images))
        assert torch.equal(program(images[:3]), small(images[:3]))


@pytest.mark.parametrize("name", ["onnx", "pt2", "safetensors"])
def test_an_export_that_finds_no_room_is_told_in_one_line_and_leaves_nothing(
    run: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    with mounted(tmp_path / "disk", megabytes=1) as disk:
        fill(disk)
        before = sorted(disk.iterdir())
        assert main(["export", str(run), "--format", name, "--out", str(disk / f"model.{name}")]) == 2
        said = capsys.readouterr().err
        assert "can't write" in said
        assert said.count("\n") == 1
        assert sorted(disk.iterdir()) == before


def test_an_export_into_a_folder_that_is_not_there_is_told_in_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for name in ("onnx", "pt2", "safetensors"):
        assert main(["export", str(run), "--format", name, "--out", str(tmp_path / "nowhere" / "model")]) == 2
        assert f"can't write {tmp_path / 'nowhere' / 'model'}" in capsys.readouterr().err


def test_bench_measures_both_models_in_turns(run: Path, capsys: pytest.CaptureFixture[str]):
    words = ["bench", str(run), "--engine", "eager", "onnxruntime", "--batch-size", "4", "--seconds", "0.05"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["engine"], row["batch_size"]) for row in found["rows"]] == [("eager", 4), ("onnxruntime", 4)]
    assert found["keep_flops"] <= 0.45
    for row in found["rows"]:
        for model in ("dense", "small"):
            assert 0 < row[model]["low"] <= row[model]["median"] <= row[model]["high"]
    assert main(["bench", str(run), "--seconds", "0"]) == 2


def test_bench_compiles_each_model_once_and_fits_a_terminal(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    compile_model, graphs = torch.compile, []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    # The compiler itself takes a minute; what is looked at here is how often it is asked.
    monkeypatch.setattr(
        torch, "compile", lambda model, dynamic: compile_model(model, dynamic=dynamic, backend=backend)
    )
    monkeypatch.setenv("COLUMNS", "80")
    assert (
        main(["bench", str(run), "--engine", "compiled", "--batch-size", "1", "64", "--seconds", "0.05"]) == 0
    )
    out, err = capsys.readouterr()
    assert len(graphs) == 4
    assert out.count("compiled") == 2
    assert "\u2026" not in out
    assert "compiled, batch 64" in err


def test_bench_says_why_an_engine_is_left_out(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(*_, **__):
        raise RuntimeError("no C++ compiler\nwas found")

    monkeypatch.setattr(torch, "compile", refuse)
    assert (
        main(
            [
                "bench",
                str(run),
                "--engine",
                "compiled",
                "eager",
                "--batch-size",
                "2",
                "--seconds",
                "0.05",
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["left_out"] == ["compiled: no C++ compiler was found"]
    assert [row["engine"] for row in found["rows"]] == ["eager"]
