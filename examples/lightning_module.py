"""One callback in Lightning's `Trainer`: an MLP learns scikit-learn's digits and keeps half of its FLOPs."""

from __future__ import annotations

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from trainonce.integrations.lightning import TrainOnceCallback


class Digits(LightningModule):
    """Any LightningModule will do."""

    def __init__(self) -> None:
        super().__init__()
        hidden = (nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.layers = nn.Sequential(*hidden, nn.Linear(96, 10))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """The loss, which the controller learns from, too."""
        return cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any optimizer, made whenever Lightning likes."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


torch.manual_seed(0)
images, labels = (torch.tensor(found) for found in load_digits(return_X_y=True))
images = images.float() / 16
loader = DataLoader(TensorDataset(images[:1437], labels[:1437]), batch_size=64, shuffle=True)
model, callback = Digits(), TrainOnceCallback(keep_flops=0.5)
Trainer(max_epochs=20, accelerator="cpu", logger=False, callbacks=[callback]).fit(model, loader)
accuracy = (model.layers(images[1437:]).argmax(1) == labels[1437:]).float().mean()
print(f"{accuracy:.1%} accuracy on unseen images, with {callback.pruner.keep_now:.1%} of the FLOPs")
