"""`python -m benchmarks demo`: runs `make demo` and exports its small model.

Writes `benchmarks/results/demo.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.children import child_environment
from benchmarks.sheets.sheet import ROOT, Bar, bar_table, count_bar, exit_code, heading, write_sheet

LONGEST_SECONDS = 120
KEEP_FLOPS = 0.25
MOST_POINTS_LOST = 1.0

INTRODUCTION = """\
`make demo` with the environment already there: ResNet-20 on scikit-learn's digits, trained once to a
quarter of its FLOPs and, at the same time on the other core, as a whole; one seed. Then `trainonce export
--format onnx` of the small model.

- *accuracy*: top-1 on the 360 validation images, so that one image is 0.28 points.
- *seconds*: of the whole command, the start of Python and the report included. CPU seconds are of all its
  processes.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Nothing but where the sheet goes."""


def run(arguments: argparse.Namespace) -> int:
    """Measure and write the sheet; 1 if a bar is missed."""
    subprocess.run(["make", "--silent", ".venv/.ready"], cwd=ROOT, check=True)
    start, before = time.monotonic(), os.times()
    subprocess.run(["make", "--silent", "demo"], cwd=ROOT, env=child_environment(), check=True)
    seconds, after = time.monotonic() - start, os.times()
    cpu_seconds = after.children_user + after.children_system - before.children_user - before.children_system
    report = json.loads((ROOT / "runs" / "demo" / "report.json").read_text())
    bars = judge(report, seconds=seconds, onnx=_export())
    write_sheet(
        arguments.out,
        "The demo",
        heading("trainonce"),
        INTRODUCTION,
        bar_table(bars),
        f"CPU seconds: {cpu_seconds:.0f}; on idle cores the command takes a little more than half of them.",
    )
    return exit_code(bars)


def judge(report: Mapping[str, Any], *, seconds: float, onnx: str) -> list[Bar]:
    """What the demo promises, and what came of it; `onnx` is what the export says."""
    share = report["after"]["macs"] / report["before"]["macs"]
    small, whole = report["after"]["top1"], report["baseline"]["top1"]
    num_same, num_samples = (report["agreement"][name] for name in ("num_same", "num_samples"))
    found = re.search(r"same classes on all (\d+) validation samples", onnx)
    num_onnx = int(found[1]) if found else 0
    return [
        ("seconds", f"<= {LONGEST_SECONDS}", f"{seconds:.0f}", seconds <= LONGEST_SECONDS),
        (
            "FLOPs of the small model, of the whole one's",
            f"<= {KEEP_FLOPS}",
            f"{share:.4f}",
            share <= KEEP_FLOPS,
        ),
        (
            "accuracy of the small model and of the whole one",
            f"at most {MOST_POINTS_LOST:g} point lower",
            f"{small:.2f} % and {whole:.2f} %",
            small >= whole - MOST_POINTS_LOST,
        ),
        count_bar("predictions that are the same across the cut", num_same, num_samples),
        count_bar("classes on which ONNX Runtime agrees", num_onnx, num_samples),
    ]


def _export() -> str:
    """What the command says that writes the small model as ONNX and compares it."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["export", "runs/demo", "--format", "onnx", "--out", f"{folder}/model.onnx"]
        command = [sys.executable, "-m", "trainonce", *words]
        return subprocess.run(
            command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False
        ).stdout
