"""Multi-label classification: dict batches, rare labels drawn more often, scored by mean AP."""

from __future__ import annotations

import torch
from sklearn.datasets import make_multilabel_classification
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, WeightedRandomSampler

import trainonce


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Counted words and the topics of a text, by name."""

    def __init__(self) -> None:
        words, topics = make_multilabel_classification(1200, 40, n_classes=6, random_state=0)[:2]
        self.words, self.topics = (torch.tensor(part, dtype=torch.float32) for part in (words, topics))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"words": self.words[index], "labels": self.topics[index]}


if __name__ == "__main__":
    torch.manual_seed(0)
    rows = Rows()
    weights = (rows.topics[:900] / rows.topics[:900].sum(0)).sum(1) + 1e-3
    sampler = WeightedRandomSampler(weights.tolist(), num_samples=900)
    train = DataLoader(Subset(rows, range(900)), batch_size=60, sampler=sampler)
    validation = DataLoader(Subset(rows, range(900, 1200)), batch_size=100)
    model = nn.Sequential(nn.BatchNorm1d(40), nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 6))
    settings = trainonce.Settings(keep_flops=0.3, epochs=20, opt="adamw", lr=3e-3)
    print(trainonce.fit(model, (train, validation), settings=settings, loss=nn.BCEWithLogitsLoss()))
