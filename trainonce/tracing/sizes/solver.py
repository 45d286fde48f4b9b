"""Which remembered sizes must change when channels go, and which cuts contradict a size that can't change.

Every call that only moves data is replayed on numbered elements: cutting before the call must give what
cutting after it gives. Where it doesn't, one of the attributes that the call's sizes come from may be the one
to change; if none helps, the channels are kept. Nothing is ever matched by value alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from trainonce.structure.channels import AttributeChange
from trainonce.tracing.sizes.checks import Assignment, Check
from trainonce.tracing.sizes.survivors import Survivors
from trainonce.tracing.state.expressions import Attribute


def solve(checks: list[Check], survivors: Survivors) -> tuple[Assignment, list[Check]]:
    """The attributes that must change under a cut, and the checks that nothing can satisfy."""
    changed: Assignment = {}
    forced_by: dict[Attribute, Check] = {}
    unmet: list[Check] = []
    for check in checks:
        if not check.is_touched(survivors, changed) or check.holds(survivors, changed):
            continue
        attempt = next(
            (attempt for attempt in _attempts(check, survivors, changed) if check.holds(survivors, attempt)),
            None,
        )
        if attempt is None:
            unmet.append(check)
        else:
            forced_by.update(
                {attribute: check for attribute in attempt if attempt[attribute] != changed.get(attribute)}
            )
            changed = attempt
    # What held before an attribute changed may not hold any more.
    again = [
        check
        for check in checks
        if check not in unmet and any(attribute in changed for attribute in check.attributes)
    ]
    failed = unmet + [check for check in again if not check.holds(survivors, changed)]
    # A check that loses no channels of its own fails because of an attribute: what forced that attribute is
    # to blame.
    innocent = [check for check in failed if not check.is_cut(survivors)]
    guilty = [
        forced_by[attribute] for check in innocent for attribute in check.attributes if attribute in forced_by
    ]
    return changed, [check for check in failed if check not in innocent] + guilty


def _attempts(check: Check, survivors: Survivors, changed: Assignment) -> Iterator[Assignment]:
    sizes = sorted(check.wanted(survivors))
    free = [attribute for attribute in check.attributes if attribute not in changed]
    yield changed | {
        attribute: number for attribute, number in check.guess(survivors).items() if attribute in free
    }
    # A number of heads is no size of any tensor here, but shrinks as one does: `[..., : heads * dims]`.
    scaled = [
        {attribute: int(check.originals[attribute] * share) for attribute in free}
        for share in sorted(check.shares(survivors))
    ]
    for count in (1, 2):
        for chosen in itertools.combinations(free[:6], count):
            for numbers in itertools.product(sizes, repeat=count):
                yield changed | dict(zip(chosen, numbers, strict=True))
            for numbers_of in scaled:
                yield changed | {attribute: numbers_of[attribute] for attribute in chosen}


def attribute_changes(
    changed: Mapping[Attribute, int], originals: Mapping[Attribute, int]
) -> tuple[AttributeChange, ...]:
    """As plain data for a plan."""
    return tuple(
        AttributeChange(attribute.module, attribute.name, attribute.index, originals[attribute], number)
        for attribute, number in changed.items()
        if number != originals[attribute]
    )
