"""`python -m benchmarks.loading`: the training loop with real, augmented batches against one constant batch, in turns, in CPU seconds."""

from __future__ import annotations

import statistics
import sys
import time

import torch

from trainonce.data.augmentation import ShiftAndFlip
from trainonce.data.pictures import Normalisation, Pictures
from trainonce.training.evaluation import CrossEntropy
from trainonce.training.precision import Precision
from trainonce.training.processes import Processes
from trainonce.training.settings import Settings
from trainonce.training.trainer import Surroundings, Trainer
from trainonce.zoo.residual import thin_resnet

ROUNDS, STEPS = 12, 4


def main() -> int:
    torch.set_num_threads(1)
    images = torch.randint(0, 256, (5000, 3, 32, 32), dtype=torch.uint8)
    train = Pictures(images, torch.arange(5000) % 10, Normalisation.of(images), ShiftAndFlip(4, True))
    model = thin_resnet(20, 10).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    where = Surroundings(torch.device("cpu"), Precision("cpu", None), Processes(), torch.contiguous_format)
    trainer = Trainer(
        model, optimizer, train=train, example=None, settings=Settings(epochs=100, batch_size=128),
        surroundings=where, loss=CrossEntropy(), mixing=None,
    )  # fmt: skip
    constant = next(trainer.epoch_batches())
    batches = trainer.epoch_batches()
    times: dict[str, list[float]] = {"constant": [], "real": []}
    for name in ("constant", "real") * ROUNDS:
        start = time.process_time()
        for _ in range(STEPS):
            batch = constant if name == "constant" else next(batches, None)
            if batch is None:
                batches = trainer.epoch_batches()
                batch = next(batches)
            trainer.run_step(batch)
        times[name].append((time.process_time() - start) / STEPS)
    constant_ms, real_ms = (1000 * statistics.median(times[name]) for name in ("constant", "real"))
    print(f"ResNet-20, 32 pixels, batch 128, one thread: constant {constant_ms:.1f} ms, real {real_ms:.1f} ms per step")
    print(f"speed with real data: {constant_ms / real_ms:.3f} of that with a constant batch (bar: 0.95)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
