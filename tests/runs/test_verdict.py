"""The verdict is one sentence that says what was kept, how accurate it is, and how much faster."""

from typing import Any

import pytest

from support.finished import make_report
from trainonce.runs.report.figures import figures_of
from trainonce.runs.report.page import render_page
from trainonce.runs.report.verdict import remarks_on, verdict_of


def report_with(**changes: Any) -> dict[str, Any]:
    report = make_report()
    for name, value in changes.items():
        place, _, field = name.partition("__")
        if field:
            report[place] = (report.get(place) or {}) | {field: value}
        else:
            report[place] = value
    return report


def dense_scores(right: int) -> dict[str, Any]:
    return {"top1": 100 * right / 360, "num_samples": 360}


def latency(median: float) -> dict[str, float]:
    return {"median": median, "low": median, "high": median}


def test_the_verdict_says_it_all_in_one_sentence():
    report = report_with(baseline=dense_scores(287), before__latency_ms=latency(3.0))
    sentence = verdict_of(report)
    assert sentence == (
        "The small model keeps 45.0 % of the FLOPs, gets 1 more of the 360 images right than dense training "
        "(+0.28 points, 95 % interval -5.6 to +6.1: within the noise), predicts the same as the uncut model "
        "on all 360 images and runs 1.50x faster."
    )
    page = render_page(report)
    assert sentence in page
    assert page.index(sentence) < page.index('class="cards"')


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (288, "gets as many of the 360 images right as dense training (95 % interval"),
        (290, "gets 2 fewer of the 360 images right than dense training (-0.56 points"),
        (350, "gets 62 fewer of the 360 images right than dense training (-17.22 points"),
    ],
)
def test_accuracy_is_told_beside_dense_with_how_sure_it_is(right: int, words: str):
    sentence = verdict_of(report_with(baseline=dense_scores(right)))
    assert words in sentence
    assert ("within the noise" in sentence) is (right < 300)
    (card,) = (
        figure for figure in figures_of(report_with(baseline=dense_scores(right))) if figure.label == "Top-1"
    )
    assert card.is_worse is (right > 300)
    assert card.is_noise is (right < 300)
    assert f"{right - 288:+d}".replace("+", "-") in card.note or right == 288
    assert "images of 360" in card.note


def test_without_a_dense_run_the_accuracy_has_an_interval_of_its_own():
    sentence = verdict_of(make_report())
    assert "reaches 80.00 % top-1 (95 % interval 75.6 to 83.8 on 360 images)" in sentence
    assert "dense" not in sentence
    assert "--baseline" in render_page(make_report())


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (1.0, "runs 2.00x faster"),
        (1.99, "runs no faster"),
        (2.01, "runs no faster"),
        (4.0, "runs 2.00x slower"),
    ],
)
def test_speed_is_told_as_it_was_measured(milliseconds: float, words: str):
    report = report_with(after__latency_ms=latency(milliseconds))
    assert words in verdict_of(report)
    (card,) = (figure for figure in figures_of(report) if figure.label == "Latency")
    assert f"runs {card.change}" == words
    assert (card.is_worse, card.is_noise) == ("slower" in words, "no faster" in words)


def test_other_predictions_are_told():
    report = report_with(agreement={"num_same": 358, "num_samples": 360, "largest_difference": 0.5})
    assert "predicts the same as the uncut model on 358 of 360 images" in verdict_of(report)


def test_a_dense_run_and_one_that_still_trains_have_verdicts_of_their_own():
    dense = report_with(config__keep_flops=1.0, agreement=None, after__num_samples=360)
    assert verdict_of(dense) == (
        "Dense training, nothing was cut: 80.00 % top-1 (95 % interval 75.6 to 83.8 on 360 images)."
    )
    assert "--baseline" not in render_page(dense)
    young = report_with(before=None, history=make_report()["history"][:2])
    assert verdict_of(young) == (
        "Still training: epoch 2 of 4, 40.00 % top-1 so far, the masks keep 50.0 % of the FLOPs."
    )
    assert any("not finished" in line for line in remarks_on(young))


@pytest.mark.parametrize("name", ["after", "baseline", "agreement", "history"])
def test_what_is_not_known_is_left_out(name: str):
    report = report_with(baseline=dense_scores(287)) | {name: [] if name == "history" else None}
    assert verdict_of(report).endswith(".")
    assert "None" not in verdict_of(report)
    assert "nan" not in verdict_of(report_with(after__top1=float("nan"), baseline=dense_scores(3)))


def test_a_run_without_classes_tells_its_loss():
    report = report_with(after__top1=None, agreement=None)
    assert "reaches a validation loss of 0.5" in verdict_of(report)


def test_samples_of_a_run_of_fit_are_not_called_images():
    report = report_with(baseline=dense_scores(287))
    report["config"] = {"model": "Net", "keep_flops": 0.5}
    assert "1 more of the 360 samples right" in verdict_of(report)
