"""One run in a process of its own: `python -m benchmarks.training.child CONFIGURATION CODE`.

Writes the result to the cache.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.harness.children import end_with_parent
from benchmarks.harness.flops import count_image_macs, count_parameters
from benchmarks.harness.statefile import read_state, remove_state, write_state
from benchmarks.harness.task import Task
from benchmarks.sheets.sheet import replace_file, today, version_of
from benchmarks.training.configuration import Configuration
from benchmarks.training.contender import Contender
from benchmarks.training.entry import entry_of
from benchmarks.training.tasks import task_of

TRIES = 20


def main() -> None:
    """Train, and again if a contender asks for another try."""
    end_with_parent()
    configuration, of_code = Configuration(**json.loads(sys.argv[1])), sys.argv[2]
    task = task_of(configuration)
    configuration.epochs_file.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(TRIES):
        try:
            result = {"of_code": of_code, **_train(configuration, task, of_code)}
            break
        except Exception as error:
            if type(error).__name__ != "WrongShare":
                raise
            print(f"{configuration.name}: {error}, trying again", file=sys.stderr)
            configuration.epochs_file.unlink(missing_ok=True)
    else:
        raise SystemExit(f"{configuration.name}: no try kept the budget")
    replace_file(configuration.result_file, json.dumps(result, indent=1))
    remove_state(configuration.state_folder)


def _train(configuration: Configuration, task: Task, of_code: str) -> dict[str, Any]:
    entry = entry_of(configuration.contender)
    contender = entry.load()(configuration, task)
    dense = task.build(seed=0)
    first_epoch, log = _go_on(configuration, contender, of_code)
    for epoch in range(first_epoch, configuration.epochs):
        start = time.perf_counter()
        loss = _train_epoch(contender, configuration, task, epoch)
        seconds = time.perf_counter() - start
        log.append({"epoch": epoch + 1, "loss": loss, **task.tested(contender.model), "seconds": seconds})
        if contender.can_resume:
            state = {"of_code": of_code, "epoch": epoch + 1, "contender": contender.state_dict(), "log": log}
            write_state(configuration.state_folder, state)
        configuration.epochs_file.write_text("".join(json.dumps(line) + "\n" for line in log))
    before = log[-1]
    model = contender.finish()
    contender.model = model
    if not entry.prunes:
        _keep_weights(configuration, model)
    return {
        "configuration": json.loads(configuration.to_json()),
        **task.tested(model),
        "before_last_cut": {key: before[key] for key in before if key not in ("epoch", "loss", "seconds")},
        "share_of_flops": count_image_macs(model, task.example(1)) / count_image_macs(dense, task.example(1)),
        "share_of_parameters": count_parameters(model) / count_parameters(dense),
        "seconds": sum(line["seconds"] for line in log),
        "log": log,
        "versions": {
            name: version_of(name) for name in ("torch", "trainonce", "torch-pruning", "only_train_once")
        },
        "threads": torch.get_num_threads(),
        "date": today(),
        "images": task.data_name,
        **contender.facts(),
    }


def _keep_weights(configuration: Configuration, model: torch.nn.Module) -> None:
    """For runs that begin with a pretrained model, or learn from it."""
    weights = {name: tensor.detach().clone().contiguous() for name, tensor in model.state_dict().items()}
    configuration.weights_file.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, configuration.weights_file)


def _train_epoch(contender: Contender, configuration: Configuration, task: Task, epoch: int) -> float:
    """One epoch; gives the mean loss."""
    contender.begin_epoch(epoch)
    contender.model.train()
    seed, batch_size = configuration.seed, configuration.batch_size
    first, total = epoch * task.steps_per_epoch(batch_size), 0.0
    for number, batch in enumerate(task.batches(seed=seed, epoch=epoch, batch_size=batch_size), start=first):
        total += contender.step(
            number,
            batch,
            lambda number=number: task.held_batch(seed=seed, step=number, batch_size=batch_size),
        )
    return total / task.steps_per_epoch(batch_size)


def _go_on(
    configuration: Configuration, contender: Contender, of_code: str
) -> tuple[int, list[dict[str, Any]]]:
    state = read_state(configuration.state_folder) if contender.can_resume else None
    if state is None or state["of_code"] != of_code:
        return 0, []
    contender.load_state_dict(state["contender"])
    return state["epoch"], state["log"]


if __name__ == "__main__":
    main()
