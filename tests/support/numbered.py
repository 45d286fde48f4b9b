"""Samples that show which of them were drawn."""

from __future__ import annotations

from torch.utils.data import (
    Dataset,
    TensorDataset,
)

from support.runs import make_data

(IMAGES, LABELS), _ = make_data(160)


DATA = TensorDataset(IMAGES, LABELS)


class Numbers(Dataset):
    """Samples whose target is their number, so that it shows which were drawn."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, index
