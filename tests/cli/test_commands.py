"""Laws of the commands on a run.

What is trained can be measured, reported, exported and repeated, and says the same everywhere.
"""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from uuid import uuid4

import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

import trainonce
from support.disks import fill, mounted
from trainonce.cli import main
from trainonce.data.catalogue import open_data
from trainonce.runs.report.page import render_page
from trainonce.runs.report.writing import read_report
from trainonce.zoo.residual import thin_resnet

FLAGS = ["--epochs", "3", "--batch-size", "128", "--img-size", "8", "--save-epochs", "1", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "demo"
    assert main(["train", "digits.resnet20", *FLAGS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copied"))


def test_the_folder_holds_what_was_promised(run: Path):
    names = {str(path.relative_to(run)) for path in run.rglob("*")}
    wanted = (
        "config.yaml",
        "metrics.jsonl",
        "summary.csv",
        "log.txt",
        "env.json",
        "report.html",
        "report.json",
        "checkpoints",
    )
    assert {*wanted, "small/model.safetensors", "small/plan.json", "small/README.md"} <= names
    card = (run / "small" / "README.md").read_text()
    for word in ("cifar:resnet20", "digits", "FLOPs", "Milliseconds", "seed 0", "conv1", "Limits"):
        assert word in card


def test_evaluate_says_what_training_said(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["evaluate", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["top1"] == pytest.approx(last["top1"])
    assert found["loss"] == pytest.approx(last["validation_loss"], rel=1e-4)
    assert main(["evaluate", str(run)]) == 0
    assert "360 samples of digits" in capsys.readouterr().out


def test_the_written_configuration_repeats_the_run_to_the_bit(run: Path, tmp_path: Path):
    assert (
        main(["train", "--config", str(run / "config.yaml"), "--quiet", "--out", str(tmp_path / "again")])
        == 0
    )
    one, other = (load_file(folder / "small" / "model.safetensors") for folder in (run, tmp_path / "again"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (run / "small" / "plan.json").read_text() == (
        tmp_path / "again" / "small" / "plan.json"
    ).read_text()


def test_a_finished_run_is_not_overwritten_and_resuming_it_is_no_error(
    run: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["train", "digits.resnet20", *FLAGS, "--out", str(run)]) == 2
    assert "is finished" in capsys.readouterr().err
    for words in (["--resume", str(run)], ["digits.resnet20", *FLAGS, "--out", str(run), "--resume", "auto"]):
        assert main(["train", *words]) == 0
        assert "is finished" in capsys.readouterr().out


def test_a_run_without_its_end_goes_on_to_the_same_end(copied: Path, run: Path):
    (copied / "report.json").unlink()
    shutil.rmtree(copied / "small")
    newest = max((copied / "checkpoints").iterdir())
    shutil.rmtree(newest)
    assert main(["train", "--resume", str(copied), "--quiet"]) == 0
    one, other = (load_file(folder / "small" / "model.safetensors") for folder in (run, copied))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_was_killed_after_its_end_gets_its_page_and_its_card(
    copied: Path, capsys: pytest.CaptureFixture[str]
):
    page, card, draft = (
        copied / "report.html",
        copied / "small" / "README.md",
        copied / f".trainonce-draft-{uuid4().hex}-report.html",
    )
    wanted = page.read_text(), card.read_text()
    page.unlink()
    card.rename(draft)
    assert main(["train", "--resume", str(copied)]) == 0
    assert str(page) in capsys.readouterr().out
    assert (page.read_text(), card.read_text()) == wanted
    assert not draft.exists()


def test_a_folder_in_which_a_run_was_killed_at_its_very_start_is_used(copied: Path, run: Path):
    out = copied.parent / "out"
    out.mkdir()
    (out / ".lock").touch()
    (out / f".trainonce-draft-{uuid4().hex}-config.yaml").write_text("model: cif")
    words = [
        "train",
        "--config",
        str(run / "config.yaml"),
        "--epochs",
        "1",
        "--quiet",
        "--resume",
        "auto",
        "--out",
        str(out),
    ]
    assert main(words) == 0
    (out / "report.json").unlink()
    (out / "env.json").unlink()
    assert main(words) == 0
    assert {path.name for path in out.iterdir() if path.name.startswith(".")} == {".lock"}
    assert json.loads((out / "env.json").read_text())["seed"] == 0


@pytest.mark.parametrize(
    "words", [["--lr", "0.3"], ["digits.resnet20"], ["--out", "elsewhere"], ["--config", "config.yaml"]]
)
def test_what_can_not_change_when_going_on_is_refused(
    run: Path, words: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["train", "--resume", str(run), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", ["evaluate", "report", "export", "bench"])
def test_a_folder_without_a_run_is_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for folder in (tmp_path, tmp_path / "nothing"):
        assert main([command, str(folder)]) == 2
        assert "there is no run in" in capsys.readouterr().err


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


class Parts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))


def tags(page: str) -> list[tuple[str, dict]]:
    parser = Parts()
    parser.feed(page)
    return parser.tags


def test_the_page_needs_no_network_and_no_script(run: Path):
    page = (run / "report.html").read_text()
    found = tags(page)
    assert not [tag for tag, _ in found if tag in ("script", "iframe", "object", "embed", "img")]
    assert re.findall(r"https?://", page) == []
    assert [attrs["href"] for tag, attrs in found if "href" in attrs] == ["data:,"]
    assert sum(attrs.get("class") == "chart" for _, attrs in found) == 5
    assert sum(attrs.get("class") == "code" for _, attrs in found) == 10
    assert sum(attrs.get("class") == "heat" for _, attrs in found) == 1
    assert "prefers-color-scheme: dark" in page


def test_what_a_user_wrote_is_text_on_the_page(run: Path):
    report = read_report(run)
    report["config"]["model"] = report["layers"][0]["name"] = "<script>alert(1)</script>"
    report["history"][0]["alive"]["<img src=x>"] = [1, 2]
    page = render_page(report)
    assert not [tag for tag, _ in tags(page) if tag in ("script", "img")]
    assert "&lt;script&gt;" in page


def test_a_run_in_progress_and_a_dense_one_have_pages_too(copied: Path, capsys: pytest.CaptureFixture[str]):
    (copied / "report.json").unlink()
    assert main(["report", str(copied)]) == 0
    assert "not finished" in " ".join(capsys.readouterr().out.split())
    report = read_report(copied)
    for record in report["history"]:
        record |= {"phase": "dense", "keep_flops": 1.0, "alive": None, "controller_loss": None}
    assert "svg" in render_page(report)
    (copied / "metrics.jsonl").write_text("")
    assert main(["report", str(copied)]) == 2


def test_a_baseline_is_shown_and_remembered(copied: Path, run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(copied), "--baseline", str(run)]) == 0
    assert "+0.00 points" in capsys.readouterr().out
    assert main(["report", str(copied), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["baseline"]["top1"] is not None
