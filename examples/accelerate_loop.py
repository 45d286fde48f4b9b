"""A custom Accelerate loop, in one or more processes: `accelerate launch examples/accelerate_loop.py`."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import trainonce
from trainonce.integrations.accelerate import register, rewrap

EPOCHS = 20
torch.manual_seed(0)
images, labels = (torch.tensor(found) for found in load_digits(return_X_y=True))
images = images.float() / 16
hidden = (nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
model: nn.Module = nn.Sequential(*hidden, nn.Linear(96, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = DataLoader(TensorDataset(images[:1437], labels[:1437]), batch_size=64, shuffle=True)

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps, example = EPOCHS * len(loader), images[:2].to(accelerator.device)
pruner = trainonce.attach(model, optimizer, example=example, keep_flops=0.5, total_steps=steps)
register(accelerator, model, pruner)  # accelerator.save_state() and load_state() have the pruner in them
for _ in range(EPOCHS):
    for inputs, targets in loader:
        accelerator.backward(cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        if pruner.step(lambda x=inputs, y=targets: cross_entropy(model(x), y)):
            rewrap(accelerator, model)
small = pruner.finish().cpu().eval()
accuracy = (small(images[1437:]).argmax(1) == labels[1437:]).float().mean()
accelerator.print(f"{accuracy:.1%} accuracy on unseen images, with {pruner.keep_now:.1%} of the FLOPs")
accelerator.end_training()
