"""The command: fuzz targets with a seed and a number of cases; exits with 1 if there is a defect."""

from __future__ import annotations

import argparse
import logging
import random
import resource
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from fuzzing.harness import run_target
from fuzzing.registry import Target, all_targets

MOST_ADDRESSES = 6 * 2**30
"""Bytes of address space beyond which a case gets a MemoryError, instead of taking the machine down."""


def main(argv: Sequence[str]) -> int:
    """Fuzz, and say what was found."""
    targets = all_targets()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument(
        "--target", action="append", choices=list(targets), help="what to fuzz; all if left out"
    )
    parser.add_argument(
        "--cases", type=int, help="cases per target; a number that suits the tests if left out"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="try one case alone, and show its traceback")
    arguments = parser.parse_args(argv)
    _limit_memory()
    # What is said besides errors is not looked at here.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    is_sound = True
    for name in arguments.target or targets:
        with tempfile.TemporaryDirectory() as place:
            if arguments.case is not None:
                run_once(targets[name], Path(place), seed=arguments.seed, case=arguments.case)
                continue
            cases = range(arguments.cases or targets[name].cases)
            found = run_target(targets[name], Path(place), seed=arguments.seed, cases=cases)
        refused = ", ".join(f"{count} {kind}" for kind, count in found.refusals.most_common())
        say(
            f"{name}: {found.num_cases} cases, {found.num_taken} taken, {refused or 'none'} refused, "
            f"{len(found.wrong)} wrong"
        )
        for number, fault in list(found.wrong.items())[:20]:
            say(f"  --target {name} --seed {arguments.seed} --case {number}: {fault}")
        is_sound &= not found.wrong
    return 0 if is_sound else 1


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_once(target: Target, place: Path, *, seed: int, case: int) -> None:
    """Try one case without any net, so that its traceback is seen."""
    attempt = target.prepare(place)(random.Random(f"{target.name}/{seed}/{case}"))
    for path in sorted(place.rglob("*")):
        say(f"{path.lstat().st_size:>15} {path}")
    say(f"taken: {attempt()!r}"[:1000])


def _limit_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MOST_ADDRESSES if hard == resource.RLIM_INFINITY else min(hard, MOST_ADDRESSES)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
