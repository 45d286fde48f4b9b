"""The number of groups that leaves the wanted FLOPs is found in few tries, whatever the law between the two; or it is said that none is."""

import math

import pytest

from benchmarks.accuracy.group_search import Try, first_share, next_number, not_below

NUM_GROUPS = 448

LAWS = {
    "power": lambda groups: groups**0.73,
    "steep": lambda groups: 1.3 * groups**1.6 / (0.3 + groups**1.6),
    "stairs": lambda groups: math.floor(300 * groups**1.4) / 300,
}


def searched(law, wanted: float) -> tuple[list[Try], bool]:
    """The tries, and whether the last of them fits."""
    tries: list[Try] = []
    number: int | None = round(NUM_GROUPS * first_share(wanted))
    while number is not None:
        assert 0 < number < NUM_GROUPS
        assert number not in [one.num_kept for one in tries]
        tries.append(Try(number, law(number / NUM_GROUPS)))
        if abs(tries[-1].flops / wanted - 1) <= 0.01:
            return tries, True
        number = next_number(wanted, tries, NUM_GROUPS)
    return tries, False


@pytest.mark.parametrize("wanted", [0.3, 0.5])
@pytest.mark.parametrize("law", LAWS)
def test_the_number_is_found_within_eight_tries(law: str, wanted: float):
    tries, fits = searched(LAWS[law], wanted)
    assert fits, tries
    assert len(tries) <= 8, tries


@pytest.mark.parametrize("cliff", [40, 97, 101, 180])
def test_where_neighbours_lie_on_both_sides_the_search_ends_with_no_fewer_flops(cliff: int):
    # As HESSO did on ResNet-20: one group more or less was between 0.294 and 0.313 of the FLOPs.
    tries, fits = searched(
        lambda groups: (
            (0.2941 if groups * NUM_GROUPS < cliff else 0.3125) * (groups * NUM_GROUPS / cliff) ** 0.7
        ),
        0.3,
    )
    assert not fits, tries
    assert len(tries) <= 12, tries
    best = not_below(0.3, tries)
    assert best.num_kept == cliff
    assert best.flops == pytest.approx(0.3125)


def test_a_law_that_falls_in_between_is_searched_all_the_same():
    # Of 448 groups, 113 to 116 would fit but fall into a pit; 112 leave too little, 117 too much.
    tries, fits = searched(lambda groups: 0.2 if 0.25 < groups < 0.26 else 1.6 * groups, 0.41)
    assert not fits, tries
    assert 0.2 in [one.flops for one in tries]
    assert not_below(0.41, tries).num_kept == 117
    assert len(tries) <= 12


def test_what_lies_between_two_tries_is_tried_next():
    # Correcting a power by the last try alone went further from the goal each time.
    found = next_number(0.3, [Try(86, 0.2557), Try(104, 0.37)], NUM_GROUPS)
    assert found is not None
    assert 86 < found < 104
