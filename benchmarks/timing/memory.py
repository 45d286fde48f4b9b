"""The largest memory of one short training in a process of its own; runs in HESSO's environment, too.

`python -m benchmarks.timing.memory NAMES ARCHITECTURE BATCH STEPS LAYOUT` trains the first of the names.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch

from benchmarks.harness.children import child_environment, end_with_parent
from benchmarks.sheets.sheet import ROOT
from benchmarks.timing.trainings import loop_class, train_in_turns

_LAYOUTS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


Peaks = tuple[float, float]
"""The largest resident memory of a child, whole and above what it was before the training."""


def median_peaks(
    names: Sequence[str],
    *,
    architecture: str,
    batch_size: int,
    num_steps: int,
    num_repeats: int,
    python: Path | None = None,
    layout: str = "channels_last",
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Peaks]:
    """In turns; medians in megabytes.

    Each child imports what all of `names` need: imports weigh on all that are compared alike.
    """
    found: dict[str, list[Peaks]] = {name: [] for name in names}
    for _ in range(num_repeats):
        for name in names:
            words = (",".join((name, *names)), architecture, str(batch_size), str(num_steps), layout)
            found[name].append(_peaks_of_child(python, *words))
            advance()
    return {
        name: (median(whole for whole, _ in peaks), median(above for _, above in peaks))
        for name, peaks in found.items()
    }


def _peaks_of_child(python: Path | None, *words: str) -> Peaks:
    command = [str(python or sys.executable), "-m", "benchmarks.timing.memory", *words]
    environment = child_environment(is_peer=python is not None)
    output = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    facts = json.loads(output.splitlines()[-1])
    return facts["peak"], facts["peak"] - facts["before"]


def _resident() -> float:
    """The largest resident set so far.

    Linux hands getrusage's figure on from the parent to the child; this one begins anew.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    """Train through all phases and print what the process needed."""
    end_with_parent()
    names, architecture, batch_size, num_steps, layout = sys.argv[1:]
    name, *beside = names.split(",")
    for other in (name, *beside):
        loop_class(other)
    before = _resident()
    sizes = {"architecture": architecture, "num_steps": int(num_steps), "batch_size": int(batch_size)}
    train_in_turns((name,), **sizes, memory_format=_LAYOUTS[layout])
    print(json.dumps({"peak": _resident(), "before": before}))


if __name__ == "__main__":
    main()
