"""The table of int8 beside float: one row per model, on page and terminal, and lines that say why."""

import html
import io
from typing import Any

import pytest
from rich.console import Console

from support.finished import make_report
from trainonce.runs.report.facts import check_facts
from trainonce.runs.report.int8 import as_int8_table, int8_table
from trainonce.runs.report.kinds import WrongKindError
from trainonce.runs.report.page import render_page


def make_int8(**changes: Any) -> dict[str, Any]:
    def standing(name: str, top1: float | None, low: float, size: int) -> dict[str, Any]:
        times = {"low": low, "median": 2 * low, "high": 3 * low}
        return {"name": name, "top1": top1, "bytes": size, "milliseconds": {"1": times, "32": times}}

    return {
        "path": "model.int8.onnx",
        "ranges": "smallest to largest value",
        "num_validation": 360,
        "num_calibration": 256,
        "num_layers": 20,
        "threads": 1,
        "standings": [
            standing("dense", 98.0, 4.0, 4000),
            standing("small", 97.0, 2.0, 2000),
            standing("small int8", 96.5, 1.0, 1000),
        ],
        "left_in_float": {},
    } | changes


def test_page_and_terminal_show_the_same_cells():
    found = make_int8()
    check_facts(make_report() | {"int8": found})
    page = html.unescape(render_page(make_report() | {"int8": found}))
    terminal = io.StringIO()
    Console(file=terminal, width=400).print(as_int8_table(found, title="demo"))
    shown = int8_table(found)
    assert shown is not None
    for cell in (cell for row in (shown.header, *shown.rows) for cell in row if cell):
        assert cell in page
        assert cell in terminal.getvalue()
    for line in shown.lines:
        assert line in page
        assert line in terminal.getvalue()
    assert "0.50 of the small float model's time at batch 1" in shown.lines[0]
    assert "1 thread," in shown.lines[-1]


def test_a_run_without_int8_says_nothing_of_it():
    assert int8_table(None) is None
    assert "In int8" not in render_page(make_report())


def test_what_is_lost_or_left_out_is_said():
    found = make_int8(left_in_float={f"node{number}": "it is odd" for number in range(7)})
    found["standings"][2]["top1"] = 90.0
    found["standings"][0]["top1"] = None
    shown = int8_table(found)
    assert shown is not None
    words = " ".join(shown.lines)
    assert "loses 7.00 points" in words
    assert "dense model is not known" in words
    assert "node4 stays in float: it is odd." in words
    assert "node5" not in words
    assert "2 more layers" in words


@pytest.mark.parametrize(
    "changes",
    [
        {"standings": "many"},
        {"threads": 0},
        {"ranges": "\x1b[2J"},
        {"left_in_float": {"a": 1}},
        {"standings": [{"name": "small", "bytes": 1, "milliseconds": {"1": None}}]},
    ],
)
def test_damage_is_refused(changes: dict[str, Any]):
    with pytest.raises(WrongKindError):
        check_facts(make_report() | {"int8": make_int8(**changes)})
    with pytest.raises(WrongKindError):
        check_facts(make_report() | {"int8": 3})
