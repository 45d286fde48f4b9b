"""Intervals hold what they promise, at the edges too, and differences are worded in samples."""

import math

import pytest

from trainonce.runs.report.uncertainty import (
    QUANTILE,
    accuracy_change,
    accuracy_interval,
    interval_words,
    signed_count,
)


def chance(num_right: int, num_samples: int, share: float) -> float:
    return math.comb(num_samples, num_right) * share**num_right * (1 - share) ** (num_samples - num_right)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
def test_the_interval_of_an_accuracy_holds_the_truth_in_95_of_100_cases(share: float):
    num_samples = 120
    held = 0.0
    for num_right in range(num_samples + 1):
        found = accuracy_interval(100 * num_right / num_samples, num_samples)
        if found.low <= 100 * share <= found.high:
            held += chance(num_right, num_samples, share)
    assert 0.925 < held < 0.975


@pytest.mark.parametrize(("one", "other"), [(0.9, 0.9), (0.95, 0.85), (0.5, 0.6)])
def test_the_interval_of_a_difference_holds_the_truth_in_95_of_100_cases(one: float, other: float):
    """Of two models that are measured on samples of their own."""
    num_samples = 40
    held = 0.0
    for mine in range(num_samples + 1):
        for theirs in range(num_samples + 1):
            change = accuracy_change(
                100 * mine / num_samples,
                100 * theirs / num_samples,
                num_samples=num_samples,
                num_before=num_samples,
            )
            assert change.interval is not None
            if change.interval.low <= 100 * (one - other) <= change.interval.high:
                held += chance(mine, num_samples, one) * chance(theirs, num_samples, other)
    assert 0.925 < held < 0.985


def test_a_perfect_score_is_not_a_sure_one():
    found = accuracy_interval(100.0, 20)
    assert found.high == 100
    assert 80 < found.low < 90


def test_many_samples_give_the_textbook_interval():
    share, num_samples = 0.9, 1_000_000
    found = accuracy_interval(100 * share, num_samples)
    width = 100 * QUANTILE * math.sqrt(share * (1 - share) / num_samples)
    assert found.high - found.low == pytest.approx(2 * width, rel=1e-3)


def test_the_difference_the_other_way_round_is_its_mirror():
    one = accuracy_change(94.5, 91.0, num_samples=200, num_before=200)
    other = accuracy_change(91.0, 94.5, num_samples=200, num_before=200)
    assert one.points == -other.points
    assert one.num_right == -(other.num_right or 0) == 7
    assert one.interval is not None
    assert other.interval is not None
    assert one.interval.low == pytest.approx(-other.interval.high)
    assert one.is_noise is other.is_noise is True


def test_a_large_difference_is_no_noise_and_an_unknown_number_of_samples_says_nothing():
    assert not accuracy_change(90.0, 50.0, num_samples=360, num_before=360).is_noise
    unknown = accuracy_change(90.0, 50.0, num_samples=None, num_before=None)
    assert unknown.interval is None
    assert not unknown.is_noise
    assert signed_count(unknown, "image") == ""
    # On other samples, a difference can't be counted in them.
    assert accuracy_change(90.0, 50.0, num_samples=360, num_before=100).num_right is None


@pytest.mark.parametrize(
    ("right", "before", "words"),
    [
        (341, 340, "+1 image of 360"),
        (340, 341, "-1 image of 360"),
        (333, 340, "-7 images of 360"),
        (340, 340, "+0 images of 360"),
    ],
)
def test_a_difference_is_counted_in_samples(right: int, before: int, words: str):
    change = accuracy_change(100 * right / 360, 100 * before / 360, num_samples=360, num_before=360)
    assert signed_count(change, "image") == words
    assert change.interval is not None
    assert interval_words(change.interval, signed=True).startswith("95 % interval -")
