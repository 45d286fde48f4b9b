"""Child processes under limits.

Takes a source and the parts to measure, gives what each part found before it ended or was ended.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.children import child_environment
from benchmarks.sheets.sheet import ROOT

_POLL_SECONDS = 0.2
_LONGEST_REASON = 300
TIME_LIMIT = "time limit"
"""How the reason begins if a part ran out of time."""

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one part of one model may use."""

    seconds: float = 300
    """Beyond this the process is ended and the part counts as timed out."""

    cpu_seconds: float | None = None
    """The same, but of the CPU: fair where other work takes turns with the child; None is no such limit."""

    memory_gb: float = 16
    """Beyond this allocations fail."""

    num_threads: int = 1
    """Of torch; with more of them than free cores, small operators mostly wait for each other."""

    python: Path | None = None
    """The interpreter of a peer that has an environment of its own; None is this one."""

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could run."""
        if self.seconds <= 0 or self.memory_gb <= 0 or self.num_threads <= 0:
            raise ValueError(
                f"limits must be above zero, got {self.seconds} seconds, {self.memory_gb} GB and "
                f"{self.num_threads} threads"
            )


def measure_parts(source: str, parts: Sequence[str], limits: Limits) -> dict[str, Facts]:
    """The findings of every part; one that ends its process is noted, and the rest go on in a new one."""
    findings: dict[str, Facts] = {}
    left = list(parts)
    while left:
        found, ending = _run_child(source, left, limits)
        for part in left:
            if part not in found:
                break
            findings[part] = found[part]
            if found[part].pop("stage") != "done":
                findings[part]["failure"] = f"{ending} ({part})"
                break
        else:
            return findings
        if not found:
            findings[left[0]] = {"failure": ending}
        left = [part for part in left if part not in findings]
    return findings


def _run_child(source: str, parts: list[str], limits: Limits) -> tuple[dict[str, Facts], str]:
    """What the child wrote down, and how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        report, errors = Path(folder) / "report.jsonl", Path(folder) / "errors.txt"
        words = (source, str(report), str(limits.memory_gb), *parts)
        command = [str(limits.python or sys.executable), "-m", "benchmarks.coverage.child", *words]
        with errors.open("w") as stderr:
            child = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=child_environment(threads=limits.num_threads, is_peer=limits.python is not None),
            )
            if limits.cpu_seconds is not None:
                # Beyond the second number the kernel would kill it, and not say why.
                seconds = round(limits.cpu_seconds)
                resource.prlimit(child.pid, resource.RLIMIT_CPU, (seconds, seconds + 5))
            try:
                in_time = _wait(child, report, limits.seconds)
            finally:
                child.kill()
                child.wait()
        found = _read(report)
        stage = found[next(reversed(found))]["stage"] if found else "start"
        if not in_time:
            return found, f"{TIME_LIMIT} of {limits.seconds:.0f} s {stage}"
        if child.returncode == -signal.SIGXCPU:
            return found, f"{TIME_LIMIT} of {limits.cpu_seconds:.0f} CPU s {stage}"
        last_words = " ".join(errors.read_text(errors="replace").split()[-30:])[-_LONGEST_REASON:]
        return found, f"process ended with {child.returncode}: {last_words}"


def _wait(child: subprocess.Popen[bytes], report: Path, seconds: float) -> bool:
    """Whether the child ended by itself; each of its parts has the seconds for itself."""
    parts_seen, deadline = 0, time.monotonic() + seconds
    while child.poll() is None:
        begun = len(_read(report))
        if begun > parts_seen:
            parts_seen, deadline = begun, time.monotonic() + seconds
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _read(report: Path) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    if report.exists():
        for line in report.read_text(encoding="utf-8").splitlines():
            try:
                facts = json.loads(line)
            except ValueError:
                # The child is still writing this line.
                break
            found.setdefault(facts.pop("part"), {}).update(facts)
    return found
