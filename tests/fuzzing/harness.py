"""One case after the other: takes a target, gives what each came to, and what must not have come."""

from __future__ import annotations

import random
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.registry import Attempt, Target

MOST_SECONDS = 5.0
MOST_MEMORY = 300 * 2**20
MOST_LETTERS = 1000


class Hang(BaseException):
    """The deadline; no reader may swallow it."""


@dataclass(slots=True)
class Findings:
    """What the cases of one target came to."""

    target: str
    num_cases: int = 0
    num_taken: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """How often each kind of error was raised."""

    wrong: dict[int, str] = field(default_factory=dict)
    """For each case that is a defect, why."""


def run_target(target: Target, place: Path, *, seed: int, cases: Iterable[int]) -> Findings:
    """Try these cases of a target; each depends on the seed and its own number alone."""
    trial, findings = target.prepare(place), Findings(target.name)
    for number in cases:
        attempt = trial(random.Random(f"{target.name}/{seed}/{number}"))
        findings.num_cases += 1
        verdict, fault = try_case(attempt, size_of(place))
        if verdict is None:
            findings.num_taken += 1
        else:
            findings.refusals[verdict] += 1
        if fault is not None:
            findings.wrong[number] = fault
    return findings


def try_case(attempt: Attempt, num_bytes: int) -> tuple[str | None, str | None]:
    """The kind of error that reading a case ends with, None if it is taken.

    And what is wrong with that, None if nothing is.
    """
    error: BaseException | None = None
    started, before = time.process_time(), _reset_peak()
    with suppress(Hang):
        try:
            with _deadline():
                attempt()
        except Hang as hang:
            error = hang
        except Exception as other:
            error = other
    seconds, memory = time.process_time() - started, _peak() - before
    fault = None if error is None else _fault_of(error)
    if fault is None and seconds > MOST_SECONDS:
        fault = f"took {seconds:.1f} s"
    if fault is None and memory > 2 * num_bytes + MOST_MEMORY:
        fault = f"took {memory / 2**20:.0f} MB for {num_bytes / 2**20:.1f} MB"
    return (None if error is None else type(error).__name__), fault


def _fault_of(error: BaseException) -> str | None:
    """Why an error is none that a user may see; None if it is one."""
    message = str(error)
    if isinstance(error, Hang):
        return f"took more than {MOST_SECONDS} s"
    if not isinstance(error, ValueError) or not type(error).__module__.startswith("trainonce."):
        lines = traceback.format_exception(error)
        return (
            f"{type(error).__name__}: {message[:200]!r} from {lines[-2].strip() if len(lines) > 1 else '?'}"
        )
    if not message.isprintable():
        return f"its message is not one printable line: {message[:200]!r}"
    if len(message) >= MOST_LETTERS:
        return f"its message has {len(message)} letters: {message[:200]!r}"
    return None


def size_of(place: Path) -> int:
    """The room that all files of a case take on the disk; holes in sparse ones take none."""
    return sum(512 * path.lstat().st_blocks for path in place.rglob("*"))


@contextmanager
def _deadline() -> Iterator[None]:
    """Inside, Hang is raised after some seconds of CPU time, as soon as Python runs again."""

    def stop(*_: Any) -> None:
        raise Hang

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _reset_peak() -> int:
    """Forget the largest memory so far, where the kernel lets us; gives what is used now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS") or _peak()


def _peak() -> int:
    """The largest memory since the last reset; of the whole life where it can't be reset."""
    return _status("VmHWM") or 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(name: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    return 0
