"""All contenders by name: what each is, where its class lives, which python it needs. Imports none of them.

Another benchmark adds its own with `add_contenders`, in its command and in its `child`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.accuracy.contender import Contender


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender."""

    words: str
    module: str
    class_name: str
    prunes: bool = True
    needs_peer_python: bool = False
    needs: str | None = None
    """Another contender that has to be run first."""

    is_peer: bool = False
    package: str = "accuracy"
    """Where the module is, and the `child` that runs it."""

    settings: str = ""
    """What decides, besides the code, what it does."""

    def load(self) -> type[Contender]:
        """Import its class."""
        return getattr(importlib.import_module(f"benchmarks.{self.package}.{self.module}"), self.class_name)


CONTENDERS = {
    "dense": Entry("dense", "contender", "Contender", prunes=False),
    "ours": Entry("ours, defaults", "ours", "Ours"),
    "scratch": Entry("the shape that ours found, from scratch", "ours", "FromScratch", needs="ours"),
    "paper": Entry("ours, the paper's constants", "ours", "PaperConstants"),
    "paper_strength": Entry("ours, the paper's constant lambda only", "ours", "PaperStrength"),
    "paper_phases": Entry("ours, the paper's phases only", "ours", "PaperPhases"),
    "paper_controller": Entry("ours, the paper's controller only", "ours", "PaperController"),
    "taylor_prior": Entry("ours, controller on a Taylor prior", "ours", "TaylorPrior"),
    "free_logits": Entry("ours, one free logit per unit", "ours", "PlainController"),
    "oto": Entry("policy OTO (all penalised, half-space)", "ours", "WithOto"),
    "otov2": Entry("policy OTOv2 (static salience, half-space)", "ours", "WithOtoV2"),
    "gradual": Entry("policy gradual (HESSO-like)", "ours", "WithGradual"),
    "filter_norm": Entry("policy filter norm L2", "ours", "WithFilterNorm"),
    "norm_scale": Entry("policy batch-norm scale (slimming)", "ours", "WithNormScale"),
    "fpgm": Entry("policy geometric median (FPGM)", "ours", "WithGeometricMedian"),
    "taylor": Entry("policy Taylor", "ours", "WithTaylor"),
    "random": Entry("policy random", "ours", "WithRandom"),
    "uniform": Entry("policy uniform", "ours", "WithUniform"),
    "torch_pruning": Entry("Torch-Pruning: train, prune, fine-tune, one cosine", "train_prune_tune", "OneCosine", is_peer=True),
    "torch_pruning_early": Entry("Torch-Pruning: the same, pruned at 30 %", "train_prune_tune", "PrunedEarly", is_peer=True),
    "torch_pruning_global": Entry("Torch-Pruning: the same, layers ranked together", "train_prune_tune", "RankedTogether", is_peer=True),
    "torch_pruning_two": Entry("Torch-Pruning: train, prune, fine-tune, two cosines", "train_prune_tune", "TwoCosines", is_peer=True),
    "torch_pruning_sparse": Entry("Torch-Pruning: group sparsity, prune, fine-tune", "train_prune_tune", "GroupSparsity", is_peer=True),
    "hesso": Entry("only_train_once: HESSO", "hesso", "HessoContender", needs_peer_python=True, is_peer=True),
    "hesso_early": Entry("only_train_once: HESSO, pruned by 30 %", "hesso", "PrunedEarly", needs_peer_python=True, is_peer=True),
}


def add_contenders(entries: Mapping[str, Entry]) -> None:
    """Make more contenders known to this process."""
    if known := CONTENDERS.keys() & entries.keys():
        raise ValueError(f"there are contenders of these names already: {', '.join(sorted(known))}. Choose others.")
    CONTENDERS.update(entries)
