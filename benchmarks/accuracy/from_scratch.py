"""The shape that our defaults found, trained from scratch as the dense model is."""

from __future__ import annotations

from dataclasses import replace

import torch

import trainonce
from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.contender import Contender
from benchmarks.accuracy.fingerprint import fingerprint
from benchmarks.resnet import draw_weights


class FromScratch(Contender):
    """The shape that our defaults found with the same seed, first weights drawn anew, trained as the dense model is."""

    def prepare(self) -> None:
        """Cut the untrained model and draw its weights again."""
        source = shape_source(self.configuration)
        found = source.result(of_code=fingerprint(source.contender))
        if found is None:
            raise RuntimeError(f"{source.name} has to be run first, by this code: it gives the shape")
        trainonce.cut(self.model, trainonce.Plan.from_json(found["plan"]))
        torch.manual_seed(self.configuration.seed + 1000)
        draw_weights(self.model)
        super().prepare()


def shape_source(configuration: Configuration) -> Configuration:
    """The run whose shape is trained from scratch."""
    return replace(configuration, contender="ours")
