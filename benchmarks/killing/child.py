"""A training that resumes where it was killed.

`python -m benchmarks.killing.child FOLDER STEPS EVERY BATCH SEED`

A user's own loop on the digits: model, optimizer, pruner, random stream and place in the data go to FOLDER
every few steps. Prints one line a step, and writes the final weights to FOLDER/final.safetensors.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

import trainonce
from benchmarks.harness.images import load_images
from benchmarks.harness.pruning import attach, held_loss
from benchmarks.harness.recipe import Recipe, set_learning_rate, take_step
from benchmarks.harness.resnet import build_resnet
from benchmarks.harness.statefile import read_state, write_state

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
    settings = {"keep_flops": KEEP_FLOPS, "total_steps": total_steps, "strength": STRENGTH, "seed": seed}
    pruner = attach(model, optimizer, example=images.example(), **settings)
    # The pruner first: it cuts the model and the optimizer's state if a run was past the shrink.
    parts = {"pruner": pruner, "model": model, "optimizer": optimizer}
    shuffle = torch.Generator().manual_seed(seed)
    step, order, place = 0, torch.randperm(len(images.train_images), generator=shuffle), 0
    state = read_state(folder / "checkpoint")
    if state is not None:
        for name, part in parts.items():
            part.load_state_dict(state[name])
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
        inputs = images.normalised(images.train_images[chosen])
        # From torch's global stream: a run resumes exactly only if that is put back too.
        noisy = inputs + 0.1 * torch.randn_like(inputs)
        take_step(model, optimizer, (noisy, images.train_labels[chosen]))
        pruner.step(lambda step=step: held_loss(model, images, seed=seed, step=step, batch_size=32))
        step += 1
        if step % every == 0:
            state = {name: part.state_dict() for name, part in parts.items()}
            streams = {"random": torch.get_rng_state(), "shuffle": shuffle.get_state()}
            places = {"step": step, "order": order, "place": place}
            write_state(folder / "checkpoint", state | streams | places)
        print(f"step {step} {pruner.phase.value}", flush=True)
    weights = {name: tensor.contiguous() for name, tensor in pruner.finish().state_dict().items()}
    save_file(weights, folder / "unfinished")
    (folder / "unfinished").rename(folder / "final.safetensors")


if __name__ == "__main__":
    main()
