"""Pages of runs without classes say what was measured: mean IoU, MAE and R2, mean AP, or one's own."""

from __future__ import annotations

from typing import Any

import pytest

from support.finished import make_report
from support.moments import moment
from trainonce.runs.report.card import render_card
from trainonce.runs.report.facts import check_facts
from trainonce.runs.report.figures import figures_of
from trainonce.runs.report.kinds import WrongKindError
from trainonce.runs.report.live import describe
from trainonce.runs.report.page import render_page
from trainonce.runs.report.scores import scores_of
from trainonce.runs.report.verdict import verdict_of

KINDS: dict[str, tuple[dict[str, float], dict[str, float], str]] = {
    "segmentation": (
        {"mean_iou": 71.234, "pixel_accuracy": 93.1},
        {"mean_iou": 72.0, "pixel_accuracy": 93.0},
        "reaches mean IoU 71.23 % and pixel accuracy 93.10 %",
    ),
    "regression": (
        {"mae": 0.01234567, "r2": 0.981},
        {"mae": 0.011, "r2": 0.982},
        "reaches MAE 0.01235 and R2 0.981",
    ),
    "labels": ({"mean_ap": 55.5}, {"mean_ap": 54.0}, "reaches mean AP 55.50 %"),
    "one's own": ({"<b>dice|x": 0.5}, {"<b>dice|x": 0.75}, "reaches <b>dice|x 0.5"),
}


def report_of(metrics: dict[str, float], baseline: dict[str, float] | None = None) -> dict[str, Any]:
    report = make_report({"keep_flops": 0.5, "epochs": 4, "seed": 0})
    for record in [*report["history"], report["after"]]:
        record |= {"top1": None, "top5": None, "metrics": metrics}
    report.pop("baseline", None)
    if baseline is not None:
        report["baseline"] = {
            "top1": None,
            "metrics": baseline,
            "history": [{"epoch": 1, "metrics": baseline}],
        }
    check_facts(report)
    return report


@pytest.mark.parametrize("kind", KINDS)
def test_page_card_and_table_say_what_was_measured(kind: str):
    metrics, dense, words = KINDS[kind]
    report = report_of(metrics)
    assert words in verdict_of(report)
    labels = [figure.label for figure in figures_of(report)]
    assert labels[: len(metrics)] == [score.kind.label for score in scores_of(report["after"])]
    page, card = render_page(report), render_card(report)
    assert "Top-1" not in page + card
    assert "<b>dice" not in page + card
    compared = report_of(metrics, dense)
    assert "(dense training: " in verdict_of(compared)
    assert "from dense" in render_page(compared)


def test_better_is_higher_or_lower_by_kind():
    def worse(metrics: dict[str, float], dense: dict[str, float]) -> list[bool]:
        return [figure.is_worse for figure in figures_of(report_of(metrics, dense))[: len(metrics)]]

    assert worse({"mae": 0.2, "r2": 0.9}, {"mae": 0.1, "r2": 0.8}) == [True, False]
    assert worse({"mean_iou": 50.0, "mine": 1.0}, {"mean_iou": 60.0, "mine": 2.0}) == [True, False]


def test_what_is_not_a_number_is_left_out_and_what_is_no_metric_is_refused():
    assert scores_of({"metrics": {"mae": float("nan"), "r2": 0.5, "other": None}})[0].name == "r2"
    report = report_of({"mae": 1.0})
    for wrong in (["mae"], {"mae": "small"}, {"a\nb": 1.0}, {str(number): 1.0 for number in range(101)}):
        with pytest.raises(WrongKindError):
            check_facts(report | {"after": report["after"] | {"metrics": wrong}})


def test_the_live_line_has_the_first_metric():
    assert "mean IoU 71.23 %" in describe(
        moment(top1=None, metrics={"mean_iou": 71.234, "pixel_accuracy": 90.0})
    )
