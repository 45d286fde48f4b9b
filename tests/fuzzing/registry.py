"""The list of targets: functions that make damaged files for one reader of the library."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fuzzing import targets

Attempt = Callable[[], object]
"""Reads the case; what is measured."""

Trial = Callable[[random.Random], Attempt]
"""Makes one case."""

TARGETS: dict[str, Target] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """One reader, and how many cases the tests try on it."""

    name: str
    prepare: Callable[[Path], Trial]
    cases: int


def target(name: str, *, cases: int) -> Callable[[Callable[[Path], Trial]], Callable[[Path], Trial]]:
    """Register the decorated function; it gets an empty folder, and gives what makes a case in it."""

    def register(prepare: Callable[[Path], Trial]) -> Callable[[Path], Trial]:
        if name in TARGETS:
            raise ValueError(f"there is already a target {name!r}")
        TARGETS[name] = Target(name, prepare, cases)
        return prepare

    return register


def all_targets() -> dict[str, Target]:
    """Every target of every file in `targets/`."""
    for module in pkgutil.iter_modules(targets.__path__):
        importlib.import_module(f"fuzzing.targets.{module.name}")
    return dict(sorted(TARGETS.items()))


class Told(ValueError):
    """A line that a reader told instead of raising; judged as any error of ours is."""

    __module__ = "trainonce.told"


def refuse(line: str) -> NoReturn:
    """End a case whose reader has told this line."""
    raise Told(line)
