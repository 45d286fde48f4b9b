"""A training that goes on where it was killed.

`python -m benchmarks.resume.child FOLDER STEPS EVERY BATCH SEED`.

A user's own loop on the digits: model, optimizer, pruner, random stream and place in the data go to FOLDER
every few steps. Prints one line a step, and writes the final weights to FOLDER/final.safetensors.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

import trainonce
from benchmarks.images import Images, load_images
from benchmarks.recipe import Recipe, set_learning_rate
from benchmarks.resnet import build_resnet
from benchmarks.statefile import read_state, write_state

DEPTH = 20
KEEP_FLOPS = 0.45
# Gentle enough that units take a while to reach zero: there are then steps between the decision and the
# shrink to be killed in.
STRENGTH = trainonce.Strength(settled=0.2, zero_within=0.15)


def main() -> None:
    """Train to the end, from the last checkpoint if there is one."""
    folder, (total_steps, every, batch_size, seed) = Path(sys.argv[1]), (int(word) for word in sys.argv[2:])
    images = load_images("digits")
    torch.manual_seed(seed)
    model = build_resnet(DEPTH, seed=seed, num_colours=images.num_colours)
    recipe = Recipe()
    optimizer = recipe.optimizer(model)
    warnings.simplefilter("ignore", trainonce.ShortRunWarning)
    pruner = trainonce.attach(
        model,
        optimizer,
        example=images.example(),
        keep_flops=KEEP_FLOPS,
        total_steps=total_steps,
        strength=STRENGTH,
        seed=seed,
    )
    shuffle = torch.Generator().manual_seed(seed)
    step, order, place = 0, torch.randperm(len(images.train_images), generator=shuffle), 0
    state = read_state(folder / "checkpoint")
    if state is not None:
        # The pruner first: it cuts the model and the optimizer's state if the run was past the shrink.
        pruner.load_state_dict(state["pruner"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        shuffle.set_state(state["shuffle"])
        step, order, place = state["step"], state["order"], state["place"]
    print(f"from {step} {pruner.phase.value}", flush=True)
    while step < total_steps:
        if place + batch_size > len(order):
            order, place = torch.randperm(len(order), generator=shuffle), 0
        chosen = order[place : place + batch_size]
        place += batch_size
        set_learning_rate(optimizer, recipe.learning_rate(step, total_steps))
        cross_entropy(model(_noisy(images, chosen)), images.train_labels[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step(lambda step=step: _held_loss(model, images, seed=seed, step=step))
        step += 1
        if step % every == 0:
            write_state(
                folder / "checkpoint",
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "pruner": pruner.state_dict(),
                    "random": torch.get_rng_state(),
                    "shuffle": shuffle.get_state(),
                    "step": step,
                    "order": order,
                    "place": place,
                },
            )
        print(f"step {step} {pruner.phase.value}", flush=True)
    small = pruner.finish()
    save_file(
        {name: tensor.contiguous() for name, tensor in small.state_dict().items()}, folder / "unfinished"
    )
    (folder / "unfinished").rename(folder / "final.safetensors")


def _noisy(images: Images, chosen: Tensor) -> Tensor:
    """Augmentation from torch's global stream: a run resumes exactly only if that is put back too."""
    inputs = images.normalised(images.train_images[chosen])
    return inputs + 0.1 * torch.randn_like(inputs)


def _held_loss(model: torch.nn.Module, images: Images, *, seed: int, step: int) -> Tensor:
    inputs, labels = images.held_batch(seed=seed, step=step, batch_size=32)
    return cross_entropy(model(inputs), labels)


if __name__ == "__main__":
    main()
