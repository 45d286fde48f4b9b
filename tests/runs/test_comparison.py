"""Several runs on one page: each is a point, beside the dense one, and nothing is written by half."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from support.finished import make_report
from trainonce.cli import main
from trainonce.data.identity.describing import describe_tensors
from trainonce.runs.report.comparing import compare_runs, differing_settings
from trainonce.runs.report.scatter import accuracy_over_flops
from trainonce.runs.report.writing import distinct_names


def make_folder(place: Path, *, keep: float, top1: float, **config: Any) -> Path:
    report = make_report()
    report["config"] |= {"keep_flops": keep} | config
    report["after"] |= {"macs": round(1000 * keep), "top1": top1, "num_samples": 360}
    place.mkdir(parents=True)
    (place / "report.json").write_text(json.dumps(report))
    return place


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        make_folder(tmp_path / "dense", keep=1.0, top1=90.0),
        make_folder(tmp_path / "half", keep=0.5, top1=90.0 + 100 / 360),
        make_folder(tmp_path / "third", keep=0.3, top1=70.0, lr=0.5),
    ]


def test_all_runs_are_on_one_chart(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "comparison: comparison.html"
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert page.count('<g class="point ') == len(runs)
    assert page.count('<path class="curve ') == len(runs)
    for run in runs:
        assert f'href="{run.name}/report.html"' in page
        assert run.name in out
        assert (run / "report.html").is_file()
    assert "+0.28" in page
    assert "+1 image of 360" in page
    assert "-72 images of 360" in page
    assert page.count('<span class="default">noise</span>') == 1
    assert "half is the most accurate small model" in page


def test_points_lie_where_flops_and_accuracy_say():
    reports = []
    for keep, top1 in ((0.2, 60.0), (0.4, 80.0), (1.0, 80.0)):
        report = make_report()
        report["after"] |= {"macs": round(1000 * keep), "top1": top1}
        reports.append((f"run {keep}", report))
    chart = str(accuracy_over_flops(compare_runs(reports)))
    places = [part.split('cx="')[1].split('" cy="') for part in chart.split("<circle ")[1:]]
    (x0, y0), (x1, y1), (x2, y2) = ((float(x), float(y.split('"')[0])) for x, y in places)
    assert (x2 - x1) == pytest.approx(3 * (x1 - x0), abs=0.41)  # each is rounded to 0.1
    assert y1 == y2 < y0
    assert accuracy_over_flops(compare_runs(reports[:1])) == ""


def test_a_dense_run_is_no_faster_than_itself(runs: list[Path]):
    reports = [json.loads((run / "report.json").read_text()) for run in runs]
    for report in reports:
        report["before"]["latency_ms"] = {"median": 3.0, "low": 3.0, "high": 3.0}
        report["after"]["latency_ms"] = {"median": 2.0, "low": 2.0, "high": 2.0}
    rows = compare_runs([(run.name, report) for run, report in zip(runs, reports, strict=True)])
    assert [row.speedup for row in rows] == ["-", "1.50x", "1.50x"]


def test_the_only_small_model_is_not_called_the_smallest(runs: list[Path], tmp_path: Path):
    page = tmp_path / "page.html"
    assert main(["report", *map(str, runs[:2]), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert (
        "half reaches 90.28 % top-1 with 50.0 % of the FLOPs, +0.28 points from dense, within the noise."
        in text
    )
    assert "smallest" not in text


def test_the_smallest_may_be_the_most_accurate_and_as_accurate_as_dense(runs: list[Path], tmp_path: Path):
    best = make_folder(tmp_path / "tenth", keep=0.1, top1=90.0)
    page = tmp_path / "page.html"
    assert main(["report", str(runs[0]), str(runs[2]), str(best), "--out", str(page)]) == 0
    assert (
        "tenth is both the smallest and the most accurate small model: 90.00 % top-1 with 10.0 % "
        "of the FLOPs, as accurate as dense, within the noise."
    ) in page.read_text(encoding="utf-8")


def make_metric_folder(place: Path, *, keep: float, **metrics: float) -> Path:
    folder = make_folder(place, keep=keep, top1=0.0)
    report = json.loads((folder / "report.json").read_text())
    report["config"].pop("data")
    report.pop("baseline", None)
    for record in [*report["history"], report["after"]]:
        record |= {"top1": None, "top5": None, "metrics": metrics}
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def test_runs_without_top1_are_compared_by_the_metric_that_all_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    places = {"dense": 1.0, "half": 0.5, "third": 0.3}
    folders = [
        make_metric_folder(tmp_path / name, keep=keep, mae=1 - keep, r2=keep) for name, keep in places.items()
    ]
    page = tmp_path / "page.html"
    assert main(["report", *map(str, folders), "--out", str(page)]) == 0
    text, said = page.read_text(encoding="utf-8"), capsys.readouterr().out
    assert text.count('<g class="point ') == text.count('<path class="curve ') == 3
    assert "half is the best small model, MAE 0.5 with 50.0 % of the FLOPs; third is the smallest" in text
    assert "+0.5<span" in text
    assert "+0.7" in said
    for words in ("top-1", "Top-1", "95 %", "accurate"):
        assert words not in text
        assert words not in said


def test_runs_that_have_no_score_in_common_share_no_chart(tmp_path: Path):
    folders = [
        make_metric_folder(tmp_path / "one", keep=0.5, mae=1.0),
        make_metric_folder(tmp_path / "two", keep=0.5, mean_iou=50.0),
    ]
    page = tmp_path / "page.html"
    assert main(["report", *map(str, folders), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert '<g class="point ' not in text
    assert "MAE 1" in text
    assert "mean IoU 50.00 %" in text


@pytest.mark.parametrize("is_other", [False, True])
def test_a_dense_run_of_other_data_is_told(
    runs: list[Path], is_other: bool, caplog: pytest.LogCaptureFixture
):
    for folder, number in zip(runs[:2], (0, int(is_other)), strict=True):
        tensors = (torch.full((4, 2), number), torch.zeros(4))
        data = {"version": 1, "classes": None, "settings": {}, "training": describe_tensors(tensors[:1])}
        (folder / "data.json").write_text(json.dumps(data | {"validation": describe_tensors(tensors)}))
    assert main(["report", str(runs[1]), "--baseline", str(runs[0])]) == 0
    assert ("not measured on the same data" in caplog.text) == is_other


def test_only_settings_that_differ_are_shown(runs: list[Path]):
    reports = [json.loads((run / "report.json").read_text()) for run in runs]
    assert differing_settings(reports) == [
        ("keep_flops", ["1.0", "0.5", "0.3"]),
        ("lr", ["none", "none", "0.5"]),
    ]


def test_a_dense_run_of_other_data_is_not_compared_with(runs: list[Path], tmp_path: Path):
    other = make_folder(tmp_path / "other", keep=0.5, top1=50.0, data="cifar10")
    named = [(run.name, json.loads((run / "report.json").read_text())) for run in (runs[0], other)]
    assert [row.change for row in compare_runs(named)] == ["", ""]


def test_names_are_told_apart_by_as_much_of_their_path_as_it_takes(tmp_path: Path):
    assert distinct_names([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == ["a/run", "b/run"]
    assert distinct_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert distinct_names([tmp_path / "a", tmp_path / "a"]) == ["a", "a"]


def test_one_bad_folder_is_told_before_anything_is_written(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "page.html"
    assert main(["report", *map(str, runs), str(tmp_path / "nowhere"), "--out", str(page)]) == 2
    assert "there is no run in" in capsys.readouterr().err
    assert not page.exists()
    assert not (runs[0] / "report.html").exists()


def test_a_place_for_the_page_of_one_run_is_refused_in_one_line(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["report", str(runs[0]), "--out", str(tmp_path / "page.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_json_of_several_runs_is_a_list(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", *map(str, runs), "--out", str(tmp_path / "page.html"), "--json"]) == 0
    assert [report["config"]["keep_flops"] for report in json.loads(capsys.readouterr().out)] == [
        1.0,
        0.5,
        0.3,
    ]


def test_names_of_folders_are_text_on_the_page(tmp_path: Path):
    folders = [make_folder(tmp_path / f"<b>{number}", keep=0.5, top1=50.0) for number in range(2)]
    assert main(["report", *map(str, folders), "--out", str(tmp_path / "page.html")]) == 0
    assert "<b>0" not in (tmp_path / "page.html").read_text(encoding="utf-8")
