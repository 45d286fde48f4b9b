"""Rows of the paper's tables can be run, cut down, resumed and read beside its figures."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.figures import Figure, look_up
from benchmarks.paper.fewer import Fewer, first_of
from benchmarks.paper.paper import Outcome, find_rows, read_settings, summarise
from benchmarks.paper.trials import Cut, trial_of
from benchmarks.sheets.sheet import spoken_command
from benchmarks.tests.test_promises import missed
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.errors import SettingError
from trainonce.recipes.paper import ROWS

ROW = find_rows("cifar10.resnet56")[0]
SHORT = "--data digits --epochs 4 --images 64 --validation-images 40 --setting batch_size=16"


def report(top1: float, *, kept: float = 1.0, seconds: float = 10.0) -> dict[str, Any]:
    return {"before": {"macs": 1000}, "after": {"macs": 1000 * kept, "top1": top1}, "seconds": seconds}


def outcome(*, kept: float = 0.45, cut: str = "") -> Outcome:
    pairs = [(report(93.0), report(93.5, kept=kept, seconds=8.0)), (report(94.0), report(93.7, kept=kept))]
    return Outcome(ROW, "paper", cut, pairs)


@pytest.fixture
def sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs rows; gives the exit code and a function that reads the cells of the sheet."""

    def run(words: str):
        arguments = ["paper", *words.split(), "--out", str(tmp_path / "paper.md")]
        arguments += ["--runs", str(tmp_path / "runs")]
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        code = main(arguments)
        page = (tmp_path / "paper.md").read_text() if (tmp_path / "paper.md").is_file() else ""
        assert str(tmp_path) not in page
        return code, lambda row, column: look_up(Figure("", "paper", (row, column)), tmp_path)

    return run


def test_two_rows_cut_down_to_seconds(sheet, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = f"--rows cifar10.resnet56,cifar10.resnet56-65 {SHORT}"
    code, cell = sheet(words)
    assert code == 0, capsys.readouterr().err
    assert cell("rows run to the end", "found") == "2 of 2"
    assert cell("rows within their budget", "met") == "yes"
    assert cell("rows that are as the paper has them, not cut down", "found") == "0 of 2"
    for row in find_rows("cifar10.resnet56,cifar10.resnet56-65"):
        assert float(cell(row.recipe, "removed, here")) == pytest.approx(100 * (1 - row.keep_flops), abs=1.5)
        assert cell(row.recipe, "small, paper") == f"{row.pruned_top1:.2f}"
        assert cell(row.recipe, "cut down") == "on digits, 4 of 300 epochs, 64 images, 40 to validate on"
    names = sorted(folder.name.rpartition("-")[0] for folder in (tmp_path / "runs").iterdir())
    assert names == ["cifar10.resnet56-65-paper", "cifar10.resnet56-dense", "cifar10.resnet56-paper"]
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/report.json")}
    before = cell("cifar10.resnet56", "small, here")
    assert sheet(words)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written, "nothing is run again"
    assert cell("cifar10.resnet56", "small, here") == before
    (tmp_path / "runs" / next(name for name in written).parent.name / "report.json").unlink()
    code, cell = sheet(f"{words} --table-only")
    assert code == 1
    assert cell("rows run to the end", "met") == "NO"


def test_what_is_missed_is_said():
    assert missed(summarise([outcome()], num_wanted=1)) == []
    assert missed(summarise([outcome(kept=0.46)], num_wanted=1)) == ["rows within their budget"]
    assert missed(summarise([outcome()], num_wanted=2)) == ["rows run to the end"]


def test_a_row_stands_beside_the_papers_figures():
    cells = outcome(cut="3 of 300 epochs").cells()
    assert cells == (
        "cifar10.resnet56",
        "paper",
        "55.0",
        "55.0",
        "93.50",
        "93.50 (93.00, 94.00)",
        "93.74",
        "93.60 (93.50, 93.70)",
        "+0.24",
        "+0.10 (+0.50, -0.30)",
        "0.90",
        "3 of 300 epochs",
    )
    assert outcome().cells()[-1] == "no"


def trial(**changes: Any) -> Any:
    wanted = {"method": "paper", "cut": Cut(), "settings": {}, "seed": 0, "place": Path("runs")} | changes
    return trial_of(ROW, **wanted)


def test_what_changes_a_run_changes_its_folder():
    others = [
        trial(method="default"),
        trial(method=None),
        trial(seed=1),
        trial(cut=Cut(epochs=3)),
        trial(cut=Cut(num_images=64)),
        trial(cut=Cut(num_validation=64)),
        trial(settings={"amp": True}),
    ]
    folders = {found.folder for found in [trial(), *others]}
    assert len(folders) == 8
    assert trial(settings={"data_dir": "elsewhere", "workers": 7}).folder == trial().folder
    assert (trial().run.method, trial(method=None).run.keep_flops) == ("paper", 1.0)
    assert trial(cut=Cut(epochs=3)).run.epochs == 3


def test_the_command_over_the_sheet_can_be_copied():
    words = [
        "paper",
        "--rows",
        "a,b",
        "--data",
        "folder:/my/place",
        "--data-dir=/x",
        "--runs",
        "/y",
        "--seeds",
        "2",
    ]
    said = "python -m benchmarks paper --rows a,b --data folder:PATH --data-dir PATH --seeds 2"
    assert spoken_command(words) == said


def test_every_row_can_be_asked_for_and_no_other(capsys: pytest.CaptureFixture[str], sheet):
    assert find_rows(",".join(row.recipe for row in ROWS)) == list(ROWS)
    with pytest.raises(
        SettingError, match=r"^the paper has no row 'cifar10\.resnet65'\. Did you mean [^\n]*$"
    ):
        find_rows("cifar10.resnet65")
    assert sheet("--rows digits.resnet20")[0] == 2
    assert "the paper has no row" in capsys.readouterr().err


def test_settings_of_all_runs_are_read_as_values():
    found = read_settings(["amp=true", "batch_size=64", "lr=0.05", "device=cuda:1", "clip_grad=none"])
    assert found == {"amp": True, "batch_size": 64, "lr": 0.05, "device": "cuda:1", "clip_grad": None}
    for word in ("keep_flops=0.5", "method=paper", "amp", "seed=3"):
        with pytest.raises(SettingError, match=r"can't be a setting of all runs"):
            read_settings([word])


def test_fewer_samples_are_the_same_samples():
    whole = open_data("digits", DataOptions(augment="none")).train
    few = first_of(whole, 10)
    assert isinstance(few, Fewer)
    assert len(few) == 10
    chosen = torch.tensor([7, 0, 3])
    ((images, labels),) = few.batches([(chosen, 5)])
    ((wanted, wanted_labels),) = whole.batches([(few.indices_N[chosen], 5)])
    assert torch.equal(images, wanted)
    assert torch.equal(labels, wanted_labels)
    assert torch.equal(few.indices_N, first_of(whole, 10).indices_N)
    assert few.describe_identity() != first_of(whole, 11).describe_identity()
    assert first_of(whole, None) is first_of(whole, 10**6) is whole
