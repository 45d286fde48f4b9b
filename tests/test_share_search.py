"""The share of groups that leaves the wanted FLOPs is found in few tries, whatever the law between the two."""

import math

import pytest

from benchmarks.accuracy.share_search import groups_to_keep

LAWS = {
    "power": lambda groups: groups**0.73,
    "steep": lambda groups: 1.3 * groups**1.6 / (0.3 + groups**1.6),
    "stairs": lambda groups: math.floor(300 * groups**1.4) / 300,
}


@pytest.mark.parametrize("wanted", [0.3, 0.5])
@pytest.mark.parametrize("law", LAWS)
def test_the_share_is_found_within_eight_tries(law: str, wanted: float):
    tries: list[tuple[float, float]] = []
    while not tries or abs(tries[-1][1] / wanted - 1) > 0.01:
        groups = groups_to_keep(wanted, tries)
        assert 0 < groups < 1
        tries.append((groups, LAWS[law](groups)))
        assert len(tries) <= 8, tries


def test_what_lies_between_two_tries_is_tried_next():
    # As HESSO did on ResNet-20: correcting a power by the last try alone went further from the goal each time.
    assert 0.192 < groups_to_keep(0.3, [(0.192, 0.2557), (0.233, 0.37)]) < 0.233
