"""One run in a process of its own: `python -m benchmarks.training.child CONFIGURATION CODE`.

Writes the result to the cache.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from benchmarks.harness.children import end_with_parent
from benchmarks.harness.flops import count_image_macs, count_parameters
from benchmarks.harness.images import Images, accuracy_of, load_images, predict
from benchmarks.harness.resnet import build_resnet
from benchmarks.harness.statefile import read_state, remove_state, write_state
from benchmarks.sheets.sheet import replace_file, today, version_of
from benchmarks.training.configuration import Configuration
from benchmarks.training.contender import Contender
from benchmarks.training.entry import entry_of

TRIES = 20


def main() -> None:
    """Train, and again if a contender asks for another try."""
    end_with_parent()
    configuration, of_code = Configuration(**json.loads(sys.argv[1])), sys.argv[2]
    images = load_images(configuration.data or "digits")
    if configuration.num_images is not None:
        images = images.first(configuration.num_images)
    configuration.epochs_file.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(TRIES):
        try:
            result = {"of_code": of_code, **_train(configuration, images, of_code)}
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


def _train(configuration: Configuration, images: Images, of_code: str) -> dict[str, Any]:
    total_steps = configuration.epochs * images.steps_per_epoch(configuration.batch_size)
    entry = entry_of(configuration.contender)
    contender = entry.load()(configuration, example=images.example(), total_steps=total_steps)
    dense_macs, dense_parameters = _dense_size(configuration, images)
    first_epoch, log = _go_on(configuration, contender, of_code)
    for epoch in range(first_epoch, configuration.epochs):
        start = time.perf_counter()
        loss = _train_epoch(contender, configuration, images, epoch)
        seconds = time.perf_counter() - start
        log.append({"epoch": epoch + 1, "loss": loss, **_tested(contender, images), "seconds": seconds})
        if contender.can_resume:
            state = {"of_code": of_code, "epoch": epoch + 1, "contender": contender.state_dict(), "log": log}
            write_state(configuration.state_folder, state)
        configuration.epochs_file.write_text("".join(json.dumps(line) + "\n" for line in log))
    before = log[-1]["accuracy"]
    model = contender.finish()
    contender.model = model
    if not entry.prunes:
        # The pretrained models of runs that begin with one.
        write_state(configuration.weights_folder, model.state_dict())
    return {
        "configuration": json.loads(configuration.to_json()),
        **_tested(contender, images),
        "accuracy_before_last_cut": before,
        "share_of_flops": count_image_macs(model, images.example(1)) / dense_macs,
        "share_of_parameters": count_parameters(model) / dense_parameters,
        "seconds": sum(line["seconds"] for line in log),
        "log": log,
        "versions": {
            name: version_of(name) for name in ("torch", "trainonce", "torch-pruning", "only_train_once")
        },
        "threads": torch.get_num_threads(),
        "date": today(),
        "images": images.name,
        **contender.facts(),
    }


def _train_epoch(contender: Contender, configuration: Configuration, images: Images, epoch: int) -> float:
    """One epoch; gives the mean loss."""
    contender.begin_epoch(epoch)
    contender.model.train()
    seed, batch_size = configuration.seed, configuration.batch_size
    first, total = epoch * images.steps_per_epoch(batch_size), 0.0
    for number, batch in enumerate(
        images.batches(seed=seed, epoch=epoch, batch_size=batch_size), start=first
    ):
        total += contender.step(
            number,
            batch,
            lambda number=number: images.held_batch(seed=seed, step=number, batch_size=batch_size),
        )
    return total / images.steps_per_epoch(batch_size)


def _go_on(
    configuration: Configuration, contender: Contender, of_code: str
) -> tuple[int, list[dict[str, Any]]]:
    state = read_state(configuration.state_folder) if contender.can_resume else None
    if state is None or state["of_code"] != of_code:
        return 0, []
    contender.load_state_dict(state["contender"])
    return state["epoch"], state["log"]


def _tested(contender: Contender, images: Images) -> dict[str, float]:
    """Accuracy, and the loss, which is the quieter measure."""
    outputs = predict(contender.model, images)
    return {
        "accuracy": accuracy_of(outputs, images),
        "test_loss": float(cross_entropy(outputs, images.test_labels)),
    }


def _dense_size(configuration: Configuration, images: Images) -> tuple[int, int]:
    dense = build_resnet(configuration.depth, seed=0, num_colours=images.num_colours)
    return count_image_macs(dense, images.example(1)), count_parameters(dense)


if __name__ == "__main__":
    main()
