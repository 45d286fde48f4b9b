"""A policy that keeps the channels whose feature maps have the highest rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.messages.limits import Limits, check_value
from trainonce.pruning.distributed import averaged
from trainonce.pruning.policies.policy import Evaluate, Policy, Search
from trainonce.pruning.policies.relative import relative
from trainonce.pruning.units import Rows

Maps = list[tuple[Rows, Tensor]]
"""Rows of a layer, and their feature maps: images, rows, height, width."""


class FeatureRank(Policy):
    """Keeps the channels whose feature maps have the highest rank, averaged over images of a few batches.

    Lin et al., "HRank: filter pruning using high-rank feature map", CVPR 2020: a map of low rank holds little
    information, whichever images it is taken from.

    Different from the authors' code, which measures a trained model once, on 500 images, and takes the
    compression of each layer from a list: the maps are those of the last few batches before a decision, a
    rank counts relative to the mean of its group, and the budget sets the widths. The maps are what the norm
    after the filter puts out (without a norm, the filter itself), with negative numbers at zero as the ReLU
    behind it leaves them; filter norms decide in groups without maps, such as linear layers.
    """

    uses_loss = True
    learns = False

    def __init__(self, *, num_batches: int = 5, num_images: int = 8) -> None:
        """A policy by rank.

        Args:
            num_batches: How many updates are averaged.
            num_images: The images per batch that are measured; a singular value decomposition per image and
                channel is slow.
        """
        for name, value in (("num_batches", num_batches), ("num_images", num_images)):
            check_value(name, value, Limits(kind=int, at_least=1), "HRank uses 500 images in all.")
        self._num_batches = num_batches
        self._num_images = num_images

    def start(self, search: Search) -> None:
        """Start with nothing measured."""
        super().start(search)
        self._average = torch.zeros(len(search.units), dtype=torch.double)
        self._num_seen = 0

    def update(self, evaluate: Evaluate) -> float | None:
        """Measure the maps of one batch, with all units open; PrunerError if there are none."""
        with self._watched() as maps:
            loss, _ = evaluate(torch.ones(len(self.search.units)))
        if not torch.isfinite(loss):
            return None
        if not maps:
            raise PrunerError(
                "FeatureRank saw no feature maps (images, channels, height, width) in this model. Choose "
                "another policy; if the model is compiled, compute the loss with the model under it."
            )
        self._num_seen = min(self._num_seen + 1, self._num_batches)
        self._average = self._average + (averaged(self._ranks(maps)) - self._average) / self._num_seen
        return float(loss)

    def scores(self) -> Tensor:
        """The average rank relative to the group; in groups without maps, the norm."""
        units = self.search.units
        norms = self.search.per_unit(lambda rows, _: rows.square().sum(dim=1), only_matrices=True).sqrt()
        has_maps = units.per_group(self._average * self.search.available) > 0
        return relative(self.search, torch.where(has_maps[units.group_of], self._average, norms))

    def state_dict(self) -> dict[str, Any]:
        """The average, and of how many batches it is."""
        return {"average": self._average, "num_seen": self._num_seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state_dict."""
        self._average = state["average"].clone()
        self._num_seen = int(state["num_seen"])

    @contextmanager
    def _watched(self) -> Iterator[Maps]:
        """A context in which the feature maps of a forward pass are collected."""
        maps: Maps = []

        def collect(rows: Rows, output: Any) -> None:
            if isinstance(output, Tensor) and output.dim() == 4:
                maps.append((rows, output.detach()[: self._num_images, rows.positions.to(output.device)]))

        hooks = [
            module.register_forward_hook(lambda _module, _inputs, output, rows=rows: collect(rows, output))
            for rows, module in self._layers()
        ]
        try:
            yield maps
        finally:
            for hook in hooks:
                hook.remove()

    def _layers(self) -> Iterator[tuple[Rows, nn.Module]]:
        """The norms that write to units; where a unit has none, the layers with its filters."""
        units, tensors = self.search.units, self.search.tensors
        is_normed = torch.zeros(len(units), dtype=torch.bool)
        for rows in units.writers:
            if _is_scale(rows, tensors[rows.tensor]):
                is_normed[rows.units] = True
        for rows in units.writers:
            mine = rows
            if tensors[rows.tensor].dim() > 1:
                mine = rows.where(~is_normed[rows.units])
            elif not _is_scale(rows, tensors[rows.tensor]):
                continue
            module = self.search.model.get_submodule(rows.tensor.rpartition(".")[0])
            # Filters lie along axis 0, but for transposed convolutions, where inputs do.
            if len(mine.units) and rows.axis == 0 and not getattr(module, "transposed", False):
                yield mine, module

    def _ranks(self, maps: Maps) -> Tensor:
        """The mean rank of each unit's maps; 0 for units without any."""
        total, count = (torch.zeros(len(self.search.units), dtype=torch.double) for _ in range(2))
        for rows, found in maps:
            found = found if found.dtype == torch.double else found.float()
            ranks = torch.linalg.matrix_rank(found.relu()).double().mean(dim=0)
            rows.add_to_units(total, ranks.cpu())
            rows.add_to_units(count, torch.ones(len(rows.units)))
        return total / count.clamp_min(1)


def _is_scale(rows: Rows, tensor: Tensor) -> bool:
    """Whether these are scales of a norm: entries of a vector named weight."""
    return tensor.dim() == 1 and rows.tensor.rpartition(".")[2] == "weight"
