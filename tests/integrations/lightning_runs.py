"""A tiny LightningModule and how it is fitted in the tests; run as a script, one of two processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import trainonce
from trainonce.integrations.lightning import TrainOnceCallback

EPOCHS, BATCHES = 4, 8
STEPS = EPOCHS * BATCHES
SCHEDULE = trainonce.Schedule(search_from=2, settle_from=16, update_every=1)
"""The cuts are at steps 7 and 17, in the first and third of four epochs."""


class Net(LightningModule):
    """Calls itself, as Lightning's own examples do."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.save_hyperparameters()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            *(nn.Linear(12, width), nn.BatchNorm1d(width), nn.ReLU()),
            *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)),
        )

    def forward(self, points: Tensor) -> Tensor:
        return self.layers(points)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        points, labels = batch
        loss = cross_entropy(self(points), labels)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        points, labels = batch
        self.log("val_loss", cross_entropy(self(points), labels))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)}


class CallsItsPart(Net):
    """Calls a part of itself, and has no forward of its own."""

    forward = LightningModule.forward

    def training_step(self, batch: Any) -> dict[str, Tensor]:
        points, labels = batch
        return {"loss": cross_entropy(self.layers(points), labels)}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        pass


class StepsByHand(Net):
    """Manual optimization: two optimizer steps on each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        points, labels = batch
        optimizer: Any = self.optimizers()
        for _ in range(2):
            optimizer.zero_grad()
            self.manual_backward(cross_entropy(self(points), labels))
            optimizer.step()


class KilledError(Exception):
    pass


class Kill(Callback):
    """Ends a run as a power cut would: nothing is saved."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.current_epoch == self.epoch:
            raise KilledError


def loader(count: int = 64) -> DataLoader[Any]:
    points = torch.randn(count, 12, generator=torch.Generator().manual_seed(1))
    labels = (points @ torch.randn(12, 4, generator=torch.Generator().manual_seed(2))).argmax(dim=1)
    return DataLoader(TensorDataset(points, labels), batch_size=8)


def make_callback(**changes: Any) -> TrainOnceCallback:
    return TrainOnceCallback(**({"keep_flops": 0.5, "schedule": SCHEDULE, "round_to": 1} | changes))


def make_trainer(out: Path, *callbacks: Any, only_weights: bool = False, **changes: Any) -> Trainer:
    """A trainer that writes one checkpoint per epoch."""
    settings: dict[str, Any] = {
        "max_epochs": EPOCHS,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    every = ModelCheckpoint(out, filename="{epoch}", save_top_k=-1, save_weights_only=only_weights)
    return Trainer(callbacks=[*callbacks, every], default_root_dir=out, **(settings | changes))


def main() -> None:
    """Fit in two processes, and once more from what was saved on the way; write what each rank came to.

    With a teacher if the second word is `taught`.
    """
    torch.set_num_threads(1)
    out = Path(sys.argv[1])

    def fit(name: str, **options: Any) -> dict[str, Any]:
        net, callback = Net(), make_callback(teacher="taught" in sys.argv[2:])
        trainer = make_trainer(out / name, callback, devices=2, strategy="ddp")
        trainer.fit(net, loader(128), **options)
        return {
            # Statistics of batch norm are those of a rank.
            "weights": [weight.tolist() for weight in net.parameters()],
            "cuts": len(callback.pruner.cuts),
            "share": callback.pruner.keep_now,
            "steps": callback.pruner.num_steps,
        }

    found = {"whole": fit("run")}
    for epoch in (0, 2):
        path = str(out / "run" / f"epoch={epoch}.ckpt")
        found[f"from {epoch}"] = fit(f"again{epoch}", ckpt_path=path, weights_only=True)
    (out / f"rank{dist.get_rank()}.json").write_text(json.dumps(found))
    # A rank that leaves while the other still talks may abort.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
