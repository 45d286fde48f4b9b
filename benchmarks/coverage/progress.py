"""A run over many models: takes models and limits, gives the findings of each.

What was measured before comes from disk.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from benchmarks.coverage.children import TIME_LIMIT, Facts, Limits, measure_parts
from benchmarks.coverage.others.catalogue import SUITE as OTHERS
from benchmarks.coverage.suites import CACHE, Subject
from benchmarks.sheets.sheet import ROOT, replace_file

_MEASURED_BY = {
    "ours": ("calls", "counting", "ours", "subject", "training"),
    "turns": ("subject", "turns"),
    "peer": ("calls", "counting", "peer", "subject", "training"),
    "scale": ("scale",),
    "fastnas": ("calls", "counting", "fastnas", "subject", "training", "zeroing"),
    "fastnas_budget": ("counting", "fastnas"),
}
_OF_PEERS = ("peer", "fastnas", "fastnas_budget")
_MEASURED_ROOMS = ("execution", "structure", "tracing", "surgery", "storage", "zoo")


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of one model; a part is missing if it was not measured."""

    subject: Subject
    parts: dict[str, Facts]


def measure_all(
    subjects: Sequence[Subject],
    limits: Limits,
    *,
    workers: int,
    accept_old: bool,
    only: Sequence[str] = (),
    parts_of: Callable[[Subject], Sequence[str]] | None = None,
) -> list[Measured]:
    """The findings of every model, in the order given, with a line on stderr that says how far it is.

    Of parts that are not in `only`, if it names any, what is on disk is used and nothing is measured.
    """
    choose = parts_of or usual_parts
    progress = _Progress(len(subjects))
    with ThreadPoolExecutor(max_workers=workers) as pool:
        waiting = {
            pool.submit(_measure, subject, limits, accept_old, only, choose(subject)): subject
            for subject in subjects
        }
        found = {}
        for finished in as_completed(waiting):
            measured, was_cached = finished.result()
            found[waiting[finished].source] = measured
            progress.advance(measured, was_cached=was_cached)
    return [found[subject.source] for subject in subjects]


def usual_parts(subject: Subject) -> tuple[str, ...]:
    """What is measured on a model, in order; the peers are not installed beside other packages."""
    return {"scale": ("scale",), OTHERS: ("ours",)}.get(subject.suite, ("ours", "turns", "peer"))


def _measure(
    subject: Subject, limits: Limits, accept_old: bool, only: Sequence[str], parts: Sequence[str]
) -> tuple[Measured, bool]:
    path = CACHE / subject.suite / f"{subject.source.partition(':')[2]}.json"
    known: dict[str, Facts] = json.loads(path.read_text()) if path.exists() else {}
    wanted = {part: _fingerprint(part, subject) for part in parts}
    valid = {
        part: known[part]
        for part in wanted
        if part in known and _may_be_used(known[part], wanted[part], limits, accept_old)
    }
    missing = [part for part in wanted if part not in valid and (not only or part in only)]
    for part, facts in measure_parts(subject.source, missing, limits).items():
        valid[part] = {"of_code": wanted[part], "limit_seconds": limits.seconds, **facts}
    if missing:
        replace_file(path, json.dumps(known | valid, indent=1))
    return Measured(subject, valid), not missing


def _may_be_used(facts: Facts, code: str, limits: Limits, accept_old: bool) -> bool:
    """Whether what is on disk answers for this run; what ran out of time is tried again with more of it."""
    ran_out = (
        str(facts.get("failure")).startswith(TIME_LIMIT) and facts.get("limit_seconds", 0) < limits.seconds
    )
    return (accept_old or facts["of_code"] == code) and not ran_out


def _fingerprint(part: str, subject: Subject) -> str:
    """A hash of the code that a part measures and is measured by; the peer does not depend on ours."""
    files = [ROOT / "benchmarks" / "coverage" / f"{name}.py" for name in _MEASURED_BY[part]]
    for room in ("zoo",) if part in _OF_PEERS else _MEASURED_ROOMS:
        files += sorted((ROOT / "trainonce" / room).rglob("*.py"))
    if subject.suite == OTHERS:
        files.append(ROOT / "benchmarks" / "coverage" / "others" / f"from_{subject.kind}.py")
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class _Progress:
    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.measured_now = 0
        self.started = time.monotonic()

    def advance(self, measured: Measured, *, was_cached: bool) -> None:
        self.done += 1
        self.measured_now += not was_cached
        seconds = time.monotonic() - self.started
        left = seconds / max(self.measured_now, 1) * (self.total - self.done)
        remark = "; ".join(
            f"{part}: {facts['failure']}" for part, facts in measured.parts.items() if facts.get("failure")
        )
        how = "cached" if was_cached else "done"
        line = (
            f"[{self.done}/{self.total}] {measured.subject.source} {how}, {seconds / 60:.0f} min gone, about "
            f"{left / 60:.0f} min left"
        )
        print(f"{line}  {remark}"[:240], file=sys.stderr, flush=True)
