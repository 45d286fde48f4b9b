"""Regression on scikit-learn's diabetes data set, scored by MAE and R2."""

from __future__ import annotations

import torch
from sklearn.datasets import load_diabetes
from torch import nn

import trainonce

if __name__ == "__main__":
    torch.manual_seed(0)
    features, targets = (torch.tensor(part, dtype=torch.float32) for part in load_diabetes(return_X_y=True))
    features, targets = features * 20, (targets[:, None] - 152) / 77
    order = torch.randperm(len(features))
    train, validation = ((features[part], targets[part]) for part in (order[:342], order[342:]))
    model = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    result = trainonce.fit(
        model,
        (train, validation),
        keep_flops=0.3,
        epochs=40,
        loss=nn.MSELoss(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01),
    )
    print(result)
