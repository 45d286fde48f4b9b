"""Laws of reports that somebody else wrote.

Damage is told in one line, names are text on the page, sizes are bounded.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.finished import make_report, make_run
from trainonce.cli import main
from trainonce.errors import ReportError
from trainonce.runs.report.card import render_card
from trainonce.runs.report.charts import nice_range
from trainonce.runs.report.page import render_page
from trainonce.runs.report.writing import read_report


def deep(text: str, depth: int = 100_000) -> str:
    return text * depth


TEXTS = {
    "empty": "",
    "cut short": json.dumps(make_report())[:-200],
    "list": "[]",
    "number": "3",
    "null": "null",
    "deep": deep("["),
    "deep dicts": deep('{"a":'),
    "deep and whole": deep("[", 500) + deep("]", 500),
    "many digits": '{"version": ' + "9" * 10_000 + "}",
    "no text": "\udcff",
    "nothing": "{}",
    "newer": json.dumps(make_report() | {"version": 2}),
}
CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "history is no list": lambda report: report.update(history={"a": 1}),
    "record is no dict": lambda report: report["history"].append(3),
    "loss is text": lambda report: report["history"][0].update(loss="low"),
    "loss is endless": lambda report: report["history"][0].update(loss=10**400),
    "alive is a number": lambda report: report["history"][0].update(alive=3),
    "alive counts too many": lambda report: report["history"][0]["alive"].update(conv1=[17, 16]),
    "alive counts none": lambda report: report["history"][0]["alive"].update(conv1=[]),
    "config is text": lambda report: report.update(config="lr: 0.1"),
    "config is missing": lambda report: report.pop("config"),
    "budget is text": lambda report: report["config"].update(keep_flops="half"),
    "macs is text": lambda report: report["before"].update(macs="many"),
    "latency is half": lambda report: report["before"].update(latency_ms={"median": 1.0}),
    "layers is text": lambda report: report.update(layers="conv1"),
    "layer of endless width": lambda report: report["layers"][0].update(total=10**15),
    "layer of no width": lambda report: report["layers"][0].update(total=0),
    "layer keeps others": lambda report: report["layers"][0].update(kept=[99]),
    "layer keeps text": lambda report: report["layers"][0].update(kept=["0"]),
    "layer without a name": lambda report: report["layers"][0].pop("name"),
    "layer with an escape": lambda report: report["layers"][0].update(name="\x1b[2J"),
    "too many layers": lambda report: report.update(layers=report["layers"] * 5000),
    "schedule of no steps": lambda report: report["schedule"].update(steps_per_epoch=0),
    "agreement is a list": lambda report: report.update(agreement=[1]),
    "missing is a list": lambda report: report.update(missing=[1]),
    "missing for no reason": lambda report: report.update(missing={"latency": None}),
    "missing with an escape": lambda report: report.update(missing={"latency": "\x1b[2J"}),
    "too many settings": lambda report: report.update(config=dict.fromkeys(map(str, range(2000)))),
    "too many versions": lambda report: report.update(environment=dict.fromkeys(map(str, range(2000)))),
    "too many epochs": lambda report: report.update(history=[{}] * 300_000),
    "seconds are infinite": lambda report: report.update(seconds=float("inf")),
    "environment is missing": lambda report: report.pop("environment"),
}


def refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    for words in (["report", str(folder)], ["report", str(folder), "--json"]):
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err[:-1].isprintable()
        assert len(err) < 1000
    assert not (folder / "report.html").exists()
    return err


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_holds_no_report_is_told_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "report.json").write_text(TEXTS[name], encoding="utf-8", errors="surrogateescape")
    assert "are damaged" in refusal(tmp_path, capsys)


@pytest.mark.parametrize("name", CHANGES)
def test_a_report_with_something_of_the_wrong_kind_is_told_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    report = make_report()
    CHANGES[name](report)
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert "are damaged" in refusal(tmp_path, capsys)


@pytest.mark.parametrize("line", ["{", "[]", "3", "null", '{"loss": "low"}', "\x00", '{"epoch": true}'])
def test_records_that_are_damaged_are_told_in_one_line(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    good = json.dumps(make_report()["history"][0])
    (tmp_path / "config.yaml").write_text("model: cifar:resnet20\ndata: digits\n")
    (tmp_path / "metrics.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    assert "metrics.jsonl" in refusal(tmp_path, capsys)


def test_a_record_that_is_still_being_written_is_left_out(tmp_path: Path):
    run = make_run(tmp_path / "run")
    (run / "report.json").unlink()
    metrics = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(metrics[:-20])
    assert len(read_report(run)["history"]) == 3


def test_a_run_that_diverged_has_a_page_and_json_that_programs_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    report = make_report()
    for record in report["history"]:
        record |= {
            "loss": float("nan"),
            "validation_loss": float("inf"),
            "top1": float("nan"),
            "controller_loss": 1e38,
        }
    report["after"] |= {"top1": float("nan"), "validation_loss": float("nan")}
    report["baseline"] = {"top1": float("nan")}
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert main(["report", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path), "--json"]) == 0

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["after"]["top1"] is None


@pytest.mark.parametrize(
    "missing",
    ["after", "before", "agreement", "layers", "schedule", "seconds", "counter", "num_skipped", "baseline"],
)
def test_what_is_missing_is_left_out_of_the_page(missing: str, tmp_path: Path):
    report = make_report()
    report.pop(missing, None)
    (tmp_path / "report.json").write_text(json.dumps(report))
    for record in report["history"]:
        for name in ("phase", "alive", "controller_loss", "keep_flops", "epoch", "top1"):
            record.pop(name)
    for found in (read_report(tmp_path), report):
        assert "cifar:resnet20 on digits" in render_page(found)
        assert render_card(found).startswith("# cifar:resnet20")


def test_names_are_text_in_the_card():
    report = make_report()
    report["config"]["model"] = "x](http://evil) ![p](http://evil) <b> | `code` *bold*\n# Title"
    report["environment"]["torch"] = report["environment"]["cpu"] = "<img src=x>"
    report["layers"][0]["name"] = "a|b[c](d)<e>"
    card = render_card(report)
    assert "<b>" not in card
    assert "<img" not in card
    assert re.search(r"(?<!\\)\]\(http", card) is None
    assert "\n# Title" not in card
    assert "a\\|b\\[c\\](d)&lt;e>" in card


def test_what_is_missing_is_text_in_the_card():
    report = make_report() | {"missing": {"<script>": "[a](b) <img src=x>"}}
    report["agreement"] |= {"unit": "<b>", "num_compared": 9}
    card = render_card(report)
    assert "<" not in card
    assert "[a]" not in card


def test_many_layers_over_many_epochs_make_no_endless_page():
    report = make_report()
    alive = {f"layer{number}": [3, 5] for number in range(2000)}
    report["history"] = [report["history"][0] | {"alive": alive}] * 100
    assert len(render_page(report)) < 10_000_000


def test_files_that_would_fill_memory_are_refused_before_they_are_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("it was parsed"))
    (tmp_path / "config.yaml").write_text("lr: 0.1")
    (tmp_path / "metrics.jsonl").write_bytes(b"{}\n" * 300_000)
    with pytest.raises(ReportError, match="lines"):
        read_report(tmp_path)
    # One such letter makes all others of the text take four bytes.
    (tmp_path / "report.json").write_bytes(b'["' + "\U0001f600".encode() + b"a" * 20_000_000 + b'"]')
    with pytest.raises(ReportError, match="ASCII"):
        read_report(tmp_path)


def test_wide_layers_make_no_endless_page():
    report = make_report()
    report["layers"] = [
        report["layers"][0] | {"total": 2**20, "alive": 2**19, "kept": list(range(0, 2**20, 2))}
    ] * 3
    assert len(render_page(report)) < 3_000_000


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 0),
        (1, 1),
        (1e-320, 1e-320),
        (1e20, 1e20 + 16384),
        (-1e100, 1e100),
        (1e100, 1e100),
        (0, 1e-13),
        (5, 5 + 1e-11),
        (1e38, 2e38),
    ],
)
def test_any_two_numbers_have_a_range(low: float, high: float):
    first, last, ticks = nice_range(low, high)
    assert first <= low <= high <= last
    assert first < last
    assert 2 <= len(ticks) <= 8
