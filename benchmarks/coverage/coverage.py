"""`python -m benchmarks coverage`: every model of the suites, one child process each.

Writes `benchmarks/results/coverage.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatch

from benchmarks.coverage.children import Limits
from benchmarks.coverage.page import INTRODUCTION as INTRODUCTION
from benchmarks.coverage.page import write_page
from benchmarks.coverage.progress import measure_all
from benchmarks.coverage.suites import SUITES, Subject, list_models
from benchmarks.sheets.options import add_number, add_several


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="all", help="which (default: all)")
    words = "only this model, or those that match a pattern such as 'resnet*'"
    add_several(parser, "--only", words, metavar="NAME")
    add_number(parser, "--workers", 1, "models measured at the same time; more disturb the seconds")
    words = "measure only this part and take the others from disk"
    add_several(parser, "--part", words, choices=["ours", "turns", "peer", "scale"])
    parser.add_argument("--keep-cache", action="store_true", help="also use results of older code")
    add_number(parser, "--seconds", 300.0, "time limit of each part of a model", metavar="S")
    add_number(parser, "--memory-gb", 16.0, "memory limit of a model's process", metavar="GB")


def run(arguments: argparse.Namespace) -> int:
    """Measure the models that were asked for.

    Those measured before with the same code are not measured again.
    """
    suites = list(SUITES) if arguments.suite == "all" else [arguments.suite]
    models = [model for suite in suites for model in list_models(suite) if is_wanted(model, arguments.only)]
    if not models:
        print(f"no model of {', '.join(suites)} is named {' or '.join(arguments.only)}", file=sys.stderr)
        return 2
    limits = Limits(
        seconds=arguments.seconds,
        memory_gb=arguments.memory_gb,
        num_threads=max(1, _num_cores() // arguments.workers),
    )
    measured = measure_all(
        models, limits, workers=arguments.workers, accept_old=arguments.keep_cache, only=arguments.part
    )
    write_page(arguments.out, measured)
    return 0


def _num_cores() -> int:
    """Those that this process may use: fewer than the machine has under `taskset` or in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_wanted(model: Subject, patterns: Sequence[str]) -> bool:
    name = model.source.partition(":")[2]
    return not patterns or any(
        fnmatch(name, pattern) or fnmatch(model.source, pattern) for pattern in patterns
    )
