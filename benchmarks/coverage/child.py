"""One model in a process of its own: `python -m benchmarks.coverage.child SOURCE REPORT MEMORY_GB PART...`.

Every finding goes to the report at once, one JSON line each, so that a killed process leaves what it found.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from benchmarks.coverage.calls import reason_of
from benchmarks.harness.children import end_with_parent

PARTS = {
    "ours": ("benchmarks.coverage.ours", "measure_laws"),
    "turns": ("benchmarks.coverage.turns", "measure_turns"),
    "peer": ("benchmarks.coverage.peer", "measure_peer"),
    "scale": ("benchmarks.coverage.scale", "measure_scale"),
    "fastnas": ("benchmarks.coverage.fastnas", "measure_fastnas"),
    "fastnas_budget": ("benchmarks.coverage.fastnas", "measure_fastnas_budget"),
}

Measure = Callable[[str], Iterator[tuple[str, dict[str, Any]]]]


def main() -> None:
    """Measure the parts one after the other; a part that raises says so and the next one begins."""
    source, report_path, memory_gb, *parts = sys.argv[1:]
    end_with_parent()
    limit = int(float(memory_gb) * 1e9)
    # Address space counts what torch's libraries only reserve; data counts what is really asked for.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with open(report_path, "w", encoding="utf-8") as report:
        for part in parts:
            _tell(report, part, {"stage": "import"})
            module_name, function_name = PARTS[part]
            module = importlib.import_module(module_name)
            if hasattr(module, "warm_up"):
                module.warm_up()
            _tell(report, part, {"stage": "build"})
            _measure(report, part, getattr(module, function_name), source)


def _measure(report: TextIO, part: str, measure: Measure, source: str) -> None:
    stage = "build"
    try:
        for stage, facts in measure(source):
            _tell(report, part, {"stage": f"after {stage}", **facts})
        _tell(report, part, {"stage": "done"})
    except (Exception, RecursionError, MemoryError) as error:
        _tell(report, part, {"stage": "done", "failure": f"after {stage}: {reason_of(error, longest=300)}"})


def _tell(report: TextIO, part: str, facts: dict[str, Any]) -> None:
    report.write(json.dumps({"part": part, **facts}) + "\n")
    report.flush()


if __name__ == "__main__":
    main()
