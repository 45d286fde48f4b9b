"""The largest memory of one short run in a process of its own: `python -m benchmarks.overhead.memory LOOP DEPTH BATCH STEPS`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.loops import PlainLoop, PrunedLoop, noise_batches
from benchmarks.recipe import Recipe
from benchmarks.resnet import build_resnet
from benchmarks.sheet import ROOT

LOOPS = ("plain", "pruned")


def peak_megabytes(loop: str, *, depth: int, batch_size: int, num_steps: int) -> tuple[float, float]:
    """The largest resident memory of a child, whole and above what it was before the model was built."""
    command = [sys.executable, "-m", "benchmarks.overhead.memory", loop, str(depth), str(batch_size), str(num_steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    output = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    facts = json.loads(output.splitlines()[-1])
    return facts["peak"], facts["peak"] - facts["before"]


def _resident() -> float:
    """The largest resident set so far. Linux hands getrusage's figure on from the parent to the child; this one begins anew."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    """Train through all phases and print what the process needed."""
    name, depth, batch_size, num_steps = sys.argv[1], *(int(word) for word in sys.argv[2:])
    batches = noise_batches(3, batch_size)
    before = _resident()
    model = build_resnet(depth, seed=0).to(memory_format=torch.channels_last)
    if name == "plain":
        loop = PlainLoop(model, Recipe(), num_steps)
    else:
        loop = PrunedLoop(model, Recipe(), num_steps, example=batches[0][0][:2], keep_flops=0.45, shrink=False)
    for step in range(num_steps):
        loop.step(batches[step % 2], batches[2])
    loop.finish()
    print(json.dumps({"peak": _resident(), "before": before}))


if __name__ == "__main__":
    main()
