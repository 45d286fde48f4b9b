"""Laws of the commands on a run.

What is trained can be measured, reported, exported and repeated, and says the same everywhere.
"""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from safetensors.torch import load_file

from support.commands import FLAGS
from trainonce.cli import main
from trainonce.runs.report.page import render_page
from trainonce.runs.report.writing import read_report


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
