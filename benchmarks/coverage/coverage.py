"""`python -m benchmarks coverage`: every model of the suites, one child process each.

Writes `benchmarks/results/coverage.md`. The suite `others` runs in an environment of its own, which
`make others` builds, and has a sheet of its own, `coverage_others.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.coverage.children import Limits
from benchmarks.coverage.others.page import write_others
from benchmarks.coverage.others.versions import installed_versions
from benchmarks.coverage.page import INTRODUCTION as INTRODUCTION
from benchmarks.coverage.page import write_page
from benchmarks.coverage.progress import Measured, measure_all
from benchmarks.coverage.suites import OTHERS, SUITES, Subject, list_models
from benchmarks.sheets.options import add_number, add_several
from benchmarks.sheets.sheet import RESULTS, ROOT

SHEET = RESULTS / "coverage.md"
OTHERS_SHEET = RESULTS / "coverage_others.md"
OTHERS_PYTHON = ROOT / ".venv-others" / "bin" / "python"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.add_argument(
        "--suite", choices=[*SUITES, "all"], default="all", help=f"which (default: all but {OTHERS})"
    )
    words = "only this model, or those that match a pattern such as 'resnet*'"
    add_several(parser, "--only", words, metavar="NAME")
    add_number(parser, "--workers", 1, "models measured at the same time; more disturb the seconds")
    words = "measure only this part and take the others from disk"
    add_several(parser, "--part", words, choices=["ours", "turns", "peer", "scale"])
    parser.add_argument("--keep-cache", action="store_true", help="also use results of older code")
    words = "python with the packages of the suite others (default: that of `make others`)"
    parser.add_argument("--others-python", type=Path, metavar="FILE", help=words)
    add_number(parser, "--seconds", 300.0, "time limit of each part of a model", metavar="S")
    add_number(parser, "--memory-gb", 16.0, "memory limit of a model's process", metavar="GB")


def run(arguments: argparse.Namespace) -> int:
    """Measure the models that were asked for.

    Those measured before with the same code are not measured again.
    """
    if arguments.suite == OTHERS:
        return _measure_others(arguments)
    suites = [suite for suite in SUITES if suite != OTHERS] if arguments.suite == "all" else [arguments.suite]
    models = [model for suite in suites for model in list_models(suite) if is_wanted(model, arguments.only)]
    if not models:
        print(f"no model of {', '.join(suites)} is named {' or '.join(arguments.only)}", file=sys.stderr)
        return 2
    write_page(arguments.out, _measure(models, arguments, python=None))
    return 0


def _measure_others(arguments: argparse.Namespace) -> int:
    python = arguments.others_python or OTHERS_PYTHON
    if not python.exists():
        words = "`make others` builds an environment of its own for them"
        print(f"the packages of the suite {OTHERS} are not installed; {words}", file=sys.stderr)
        return 2
    models = [model for model in list_models(OTHERS) if is_wanted(model, arguments.only)]
    if not models:
        print(f"no model of {OTHERS} is named {' or '.join(arguments.only)}", file=sys.stderr)
        return 2
    versions = installed_versions(python)
    out = OTHERS_SHEET if arguments.out == SHEET else arguments.out
    return write_others(out, _measure(models, arguments, python=python), versions)


def _measure(
    models: Sequence[Subject], arguments: argparse.Namespace, *, python: Path | None
) -> list[Measured]:
    limits = Limits(
        seconds=arguments.seconds,
        memory_gb=arguments.memory_gb,
        num_threads=max(1, _num_cores() // arguments.workers),
        python=python,
    )
    return measure_all(
        models, limits, workers=arguments.workers, accept_old=arguments.keep_cache, only=arguments.part
    )


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
