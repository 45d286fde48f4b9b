"""Damaged and forged files end in one line, in time and without much memory.

And the fuzzer sees it where they don't.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzzing.harness import run_target, try_case
from fuzzing.registry import TARGETS, Attempt, Target, Trial, all_targets, target
from trainonce.errors import ArtifactError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", list(all_targets()))
def test_no_file_brings_a_reader_down(name: str):
    # In a process of its own: a limit on memory is for good, and so is what a case may have taken.
    command = [sys.executable, "-m", "tests.fuzzing", "--target", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r": (\d+) cases, (\d+) taken, .* refused, 0 wrong", done.stdout)
    assert found is not None
    # A fuzzer whose files are all taken, or all refused, would look at one half of a reader.
    assert 0 < int(found[2]) < int(found[1]) == all_targets()[name].cases


def test_every_reader_of_strangers_files_has_a_target_and_thousands_of_cases_are_tried():
    assert set(all_targets()) >= {"artifact", "checkpoint", "config", "image", "report", "weights"}
    assert sum(target.cases for target in all_targets().values()) >= 5000


def hang() -> None:
    end = time.process_time() + 60
    while time.process_time() < end:
        pass


def swallow() -> None:
    try:
        hang()
    except Exception:
        return


def swell() -> None:
    bytearray(320 * 2**20)


def raising(error: Exception) -> Callable[[], None]:
    def attempt() -> None:
        raise error

    return attempt


FAULTS: dict[str, tuple[Attempt, str]] = {
    "an error of Python": (raising(KeyError("x")), "KeyError"),
    "a ValueError of Python": (raising(ValueError("x")), "ValueError"),
    "an error of ours in two lines": (raising(ArtifactError("a\nb")), "printable"),
    "an escape sequence": (raising(ArtifactError("\x1b[31m")), "printable"),
    "a long message": (raising(ArtifactError("x" * 1000)), "1000 letters"),
    "no memory": (raising(MemoryError()), "MemoryError"),
    "a hang": (hang, "took more than 0.2 s"),
    "a hang that catches errors": (swallow, "took more than 0.2 s"),
    "much memory": (swell, "MB for"),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_is_seen(name: str, monkeypatch: pytest.MonkeyPatch):
    if name == "much memory" and not Path("/proc/self/clear_refs").exists():
        pytest.skip("the largest memory can't be measured here")
    if "hang" in name:
        monkeypatch.setattr("fuzzing.harness.MOST_SECONDS", 0.2)
    attempt, words = FAULTS[name]
    _, fault = try_case(attempt, 0)
    assert fault is not None
    assert words in fault


@pytest.mark.parametrize(
    "attempt", [lambda: None, raising(ArtifactError("one line")), lambda: bytearray(10 * 2**20) and None]
)
def test_what_is_right_is_no_fault(attempt: Attempt):
    assert try_case(attempt, 0)[1] is None


def test_a_case_depends_on_its_number_and_the_seed_alone(tmp_path: Path):
    seen: list[float] = []

    def prepare(place: Path) -> Trial:
        def trial(dice: random.Random) -> Attempt:
            seen.append(dice.random())
            return lambda: None

        return trial

    for seed, cases in ((0, range(4)), (0, (2,)), (1, (2,))):
        run_target(Target("toy", prepare, 1), tmp_path, seed=seed, cases=cases)
    assert len(set(seen[:4])) == 4
    assert seen[4] == seen[2] != seen[5]


def test_a_name_is_given_to_one_target_only():
    with pytest.raises(ValueError, match="already"):
        target("artifact", cases=1)(lambda place: lambda dice: lambda: None)
    assert TARGETS["artifact"].cases > 1000
