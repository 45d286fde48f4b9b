"""`python -m benchmarks coverage`: every model of the suites, one child process each.

Writes `benchmarks/results/coverage.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.coverage.children import Limits
from benchmarks.coverage.page import write_page
from benchmarks.coverage.progress import measure_all
from benchmarks.coverage.suites import SUITES, Subject, list_models
from benchmarks.sheet import RESULTS


def add_options(coverage: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    coverage.add_argument(
        "--suite", choices=[*SUITES, "all"], default="all", help="which models (default: all)"
    )
    coverage.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="only this model, or those that match a pattern such as 'resnet*'; may be given again",
    )
    coverage.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="models measured at the same time (default: 1; more disturb the seconds)",
    )
    coverage.add_argument(
        "--part",
        choices=["ours", "turns", "peer", "scale"],
        action="append",
        default=[],
        help="measure only this part and take the others from disk; may be given again",
    )
    coverage.add_argument("--keep-cache", action="store_true", help="also use results of older code")
    coverage.add_argument(
        "--seconds",
        type=float,
        default=300,
        metavar="S",
        help="time limit of each part of a model (default: 300)",
    )
    coverage.add_argument(
        "--memory-gb",
        type=float,
        default=16,
        metavar="GB",
        help="memory limit of a model's process (default: 16)",
    )
    coverage.add_argument(
        "--out",
        type=Path,
        default=RESULTS / "coverage.md",
        metavar="FILE",
        help="the table (default: benchmarks/results/coverage.md)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure the models that were asked for.

    Those measured before with the same code are not measured again.
    """
    suites = list(SUITES) if arguments.suite == "all" else [arguments.suite]
    models = [model for suite in suites for model in list_models(suite) if _is_wanted(model, arguments.only)]
    if not models:
        print(f"no model of {', '.join(suites)} is named {' or '.join(arguments.only)}", file=sys.stderr)
        return 2
    limits = Limits(
        seconds=arguments.seconds,
        memory_gb=arguments.memory_gb,
        num_threads=max(1, (os.cpu_count() or 1) // arguments.workers),
    )
    measured = measure_all(
        models, limits, workers=arguments.workers, accept_old=arguments.keep_cache, only=arguments.part
    )
    write_page(arguments.out, measured)
    print(f"written: {arguments.out}")
    return 0


def _is_wanted(model: Subject, patterns: Sequence[str]) -> bool:
    name = model.source.partition(":")[2]
    return not patterns or any(
        fnmatch(name, pattern) or fnmatch(model.source, pattern) for pattern in patterns
    )
