"""`python -m benchmarks cutting`: what a cut of pretrained weights costs, right after it and in the end.

Writes `benchmarks/results/cutting.md` and the runs beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch

from benchmarks.harness.image_task import ImageTask
from benchmarks.harness.images import Images, load_images
from benchmarks.harness.task import Batch
from benchmarks.sheets.options import add_data, add_number, add_several
from benchmarks.sheets.sheet import heading, replace_file, table, write_sheet
from benchmarks.sheets.waiting import waiting
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import Configuration
from benchmarks.training.fingerprint import fingerprint
from benchmarks.training.ours import Ours
from benchmarks.training.sifted import CUTTING

INTRODUCTION = """\
The dense ResNet-20 of the regime `scratch` with seed 0 (CIFAR-10, 20 epochs, `benchmarks/results/weights/`)
is pruned and fine-tuned for {steps} steps of 128: SGD, one cosine from 0.02. To choose settings by: tested on
the last tenth of the training images, which these steps don't train on (the dense model was trained on them),
with batches of seeds that no table of results has.

- *right after*: test loss and accuracy after the last cut; *in the end*: after all steps. A run that cuts
  later has had more steps by then.
- *time*: CPU seconds of the steps, of the slowest row's. *code*: of the run; `older` than today's.
"""

_HEADER = (
    *("way", "right after: loss", "right after, %", "in the end: loss", "in the end, %"),
    *("seeds", "FLOPs", "time", "code"),
)
START_EPOCHS = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add_data(parser)
    add_several(parser, "--way", "by name", choices=CUTTING, shown="all")
    add_several(parser, "--keep", "budget", type=float, shown="0.5, 0.3")
    add_number(parser, "--steps", 200, "length of each run")
    add_number(parser, "--seeds", 1, "how many, from 10 on")
    words = "run nothing; write the sheet of what has been run"
    parser.add_argument("--table-only", action="store_true", help=words)


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing, write the sheet of all that is there."""
    names = arguments.way or list(CUTTING)
    record = arguments.out.with_suffix(".ways.jsonl")
    runs = _read(record)
    seeds = range(10, 10) if arguments.table_only else range(10, 10 + arguments.seeds)
    budgets = arguments.keep or (0.5, 0.3)
    wanted = [(keep, name, seed) for seed in seeds for keep in budgets for name in names]
    images = cache(lambda: load_images(arguments.data).for_validation().first(128 * arguments.steps))
    with waiting(len(wanted), "cutting") as bar:
        for keep, name, seed in wanted:
            bar.say(f"{name}, keep_flops={keep}")
            key = _key(name, keep, seed, arguments.steps)
            if key not in runs or runs[key]["of_code"] != fingerprint(name, recipe="fine_tuning"):
                runs[key] = _run(images(), name, keep, seed, arguments)
                lines = (json.dumps(found) + "\n" for found in runs.values())
                replace_file(record, "".join(lines))
            bar.advance()
    blocks = [block for keep in (0.5, 0.3) for block in _table(list(runs.values()), keep, arguments.steps)]
    said = f"seeds 10 to {9 + arguments.seeds}" if arguments.seeds > 1 else "seed 10"
    words = INTRODUCTION.format(steps=arguments.steps)
    write_sheet(arguments.out, "Cutting pretrained weights", heading("trainonce", seeds=said), words, *blocks)
    return 0


def _run(images: Images, name: str, keep: float, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    configuration = Configuration(
        contender=name,
        keep_flops=keep,
        seed=0,
        epochs=1,
        data=arguments.data,
        recipe="fine_tuning",
        start_epochs=START_EPOCHS,
    )
    task = ImageTask(images, 20)
    torch.manual_seed(seed)
    contender = Ours(configuration, task)
    after: dict[str, float] = {}
    seconds = 0.0
    contender.model.train()
    for number, batch in enumerate(task.batches(seed=seed, epoch=0, batch_size=128)):
        start = time.process_time()
        num_cuts = len(contender.pruner.cuts)

        def draw_held(number: int = number) -> Batch:
            return task.held_batch(seed=seed, step=number, batch_size=128)

        contender.step(number, batch, draw_held)
        seconds += time.process_time() - start
        if len(contender.pruner.cuts) > num_cuts:
            after = task.tested(contender.model)
    model = contender.finish()
    return {
        "way": name,
        "keep_flops": keep,
        "seed": seed,
        "steps": arguments.steps,
        "of_code": fingerprint(name, recipe="fine_tuning"),
        "share": contender.pruner.keep_now,
        "after": after,
        "end": task.tested(model),
        "seconds": seconds,
    }


def _key(name: str, keep: float, seed: int, steps: int) -> str:
    return f"{name} {keep} {seed} {steps}"


def _read(record: Any) -> dict[str, dict[str, Any]]:
    if not record.exists():
        return {}
    found = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    return {_key(one["way"], one["keep_flops"], one["seed"], one["steps"]): one for one in found}


def _table(runs: Sequence[dict[str, Any]], keep: float, steps: int) -> Iterator[list[str]]:
    """The ways at one budget, the best first."""
    here = [one for one in runs if (one["keep_flops"], one["steps"]) == (keep, steps)]
    by_name = {name: [one for one in here if one["way"] == name] for name in CUTTING}
    by_name = {name: found for name, found in by_name.items() if found}
    slowest = max((_mean(found, "seconds") for found in by_name.values()), default=1.0)
    rows = []
    for name, found in sorted(by_name.items(), key=lambda item: _mean(item[1], "end", "test_loss")):
        is_old = any(one["of_code"] != fingerprint(name, recipe="fine_tuning") for one in found)
        rows.append(
            (
                CONTENDERS[name].words,
                f"{_mean(found, 'after', 'test_loss'):.3f}",
                f"{_mean(found, 'after', 'accuracy'):.2f}",
                f"{_mean(found, 'end', 'test_loss'):.4f}",
                f"{_mean(found, 'end', 'accuracy'):.2f}",
                len(found),
                f"{_mean(found, 'share'):.3f}",
                f"{_mean(found, 'seconds') / slowest:.2f}",
                "older" if is_old else "this",
            )
        )
    if rows:
        yield [f"## keep_flops = {keep:g}"]
        yield table(_HEADER, rows)


def _mean(runs: Sequence[dict[str, Any]], *path: str) -> float:
    total = 0.0
    for one in runs:
        value: Any = one
        for key in path:
            value = value[key]
        total += value
    return total / len(runs)
