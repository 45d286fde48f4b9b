"""HESSO and a dense loop in turns, in only_train_once's environment: `python -m benchmarks.training_time.hesso_child DEPTH STEPS BATCH`.

Prints a line per step and at last the sums as JSON. Nothing of trainonce is imported: it wants a newer torch.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from torch.nn.functional import cross_entropy

from benchmarks.flops import count_image_macs
from benchmarks.hesso import Hesso
from benchmarks.parent import end_with_parent
from benchmarks.recipe import Recipe, set_learning_rate
from benchmarks.resnet import build_resnet
from benchmarks.sheet import version_of

GROUP_SPARSITY = 0.5


def main() -> None:
    """Both loops, step by step, then the cut."""
    end_with_parent()
    depth, num_steps, batch_size = (int(word) for word in sys.argv[1:])
    torch.manual_seed(0)
    # Its views refuse channels last; so the dense loop beside it does without, too.
    images = torch.randn(batch_size, 3, 32, 32)
    labels = torch.randint(0, 10, (batch_size,))
    models = [build_resnet(depth, seed=0) for _ in range(2)]
    dense_macs = count_image_macs(models[0], images[:1])
    recipe = Recipe()
    start = time.perf_counter()
    hesso = Hesso(models[1], images[:1], recipe, num_steps, group_sparsity=GROUP_SPARSITY)
    setup_seconds = time.perf_counter() - start
    optimizers = [recipe.optimizer(models[0]), hesso.optimizer]
    for model in models:
        cross_entropy(model(images), labels).backward()
        model.zero_grad()
    wall, cpu = [0.0, 0.0], [0.0, 0.0]
    for step in range(num_steps):
        for which in (0, 1) if step % 2 else (1, 0):
            set_learning_rate(optimizers[which], recipe.learning_rate(step, num_steps))
            cpu_start, start = time.process_time(), time.perf_counter()
            cross_entropy(models[which](images), labels).backward()
            optimizers[which].step()
            optimizers[which].zero_grad()
            wall[which] += time.perf_counter() - start
            cpu[which] += time.process_time() - cpu_start
        print(step, flush=True)
    start = time.perf_counter()
    small = hesso.finish()
    once = setup_seconds + time.perf_counter() - start
    facts = {
        "dense_seconds": wall[0],
        "seconds": wall[1] + once,
        "once": once,
        "dense_cpu": cpu[0],
        "cpu": cpu[1],
        "share": count_image_macs(small, images[:1]) / dense_macs,
        "versions": f"torch {torch.__version__}, only_train_once {version_of('only_train_once')}",
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
