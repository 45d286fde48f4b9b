"""Why the rest of a model must stay: takes what was inspected, gives the reasons that cost most."""

from __future__ import annotations

from collections import Counter

from trainonce import Partition
from trainonce.structure.partition import generalize_reason

_MOST_REASONS = 3


def costliest_reasons(partition: Partition) -> list[str]:
    """The reasons that the most multiply-adds depend on, each with the share that would go without it."""
    worth: Counter[str] = Counter()
    for group, share in zip(partition.groups, partition.shares(), strict=True):
        if group.kept_because is not None and share.macs:
            worth[generalize_reason(group.kept_because)] += share.macs
    return [f"{macs / partition.macs:.0%} {reason}" for reason, macs in worth.most_common(_MOST_REASONS)]
