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
    is_extra: bool = False
    """Run only when asked for by name."""

    package: str = "accuracy"
    """Where the module is, and the `child` that runs it."""

    settings: str = ""
    """What decides, besides the code, what it does."""

    policy_files: tuple[str, ...] = ()
    """What it uses of `trainonce/pruning/policies/`."""

    def load(self) -> type[Contender]:
        """Import its class."""
        return getattr(importlib.import_module(f"benchmarks.{self.package}.{self.module}"), self.class_name)


DEFAULT_POLICY = ("default", "anchored", "controller", "capacity", "norms", "relative")
"""The files of `attach`'s own way to choose."""

CONTENDERS = {
    "dense": Entry("dense", "contender", "Contender", prunes=False),
    "ours": Entry("ours, defaults", "ours", "Ours", policy_files=DEFAULT_POLICY),
    "scratch": Entry("the shape that ours found, from scratch", "from_scratch", "FromScratch", needs="ours"),
    "paper": Entry("ours, the paper's constants", "ours", "PaperConstants", policy_files=("controller",)),
    "paper_strength": Entry(
        "ours, the paper's constant lambda only",
        "ours",
        "PaperStrength",
        policy_files=DEFAULT_POLICY,
        is_extra=True,
    ),
    "paper_phases": Entry(
        "ours, the paper's phases only", "ours", "PaperPhases", policy_files=DEFAULT_POLICY, is_extra=True
    ),
    "paper_controller": Entry(
        "ours, the paper's controller only",
        "ours",
        "PaperController",
        policy_files=("controller",),
        is_extra=True,
    ),
    "free_balance": Entry(
        "ours, layers move as freely as units",
        "ours",
        "FreeBalance",
        policy_files=DEFAULT_POLICY,
        is_extra=True,
    ),
    "no_prior": Entry(
        "ours, without the capacity prior",
        "ours",
        "WithoutPrior",
        policy_files=("anchored", "controller"),
        is_extra=True,
    ),
    "taylor_prior": Entry(
        "ours, controller on a Taylor prior",
        "ours",
        "TaylorPrior",
        policy_files=("anchored", "controller", "taylor", "relative"),
        is_extra=True,
    ),
    "free_logits": Entry(
        "ours, one free logit per unit", "ours", "PlainController", policy_files=DEFAULT_POLICY, is_extra=True
    ),
    "oto": Entry(
        "policy OTO (all penalised, half-space)",
        "other_policies",
        "WithOto",
        policy_files=("oto", "norms", "relative"),
    ),
    "otov2": Entry(
        "policy OTOv2 (static salience, half-space)",
        "other_policies",
        "WithOtoV2",
        policy_files=("oto", "norms", "relative"),
    ),
    "gradual": Entry(
        "policy gradual (HESSO-like)",
        "other_policies",
        "WithGradual",
        policy_files=("oto", "norms", "relative"),
        is_extra=True,
    ),
    "filter_norm": Entry(
        "policy filter norm L2", "other_policies", "WithFilterNorm", policy_files=("norms", "relative")
    ),
    "capacity": Entry(
        "policy capacity (the prior alone)",
        "other_policies",
        "WithCapacity",
        policy_files=("capacity", "norms", "relative"),
        is_extra=True,
    ),
    "norm_scale": Entry(
        "policy batch-norm scale (slimming)",
        "other_policies",
        "WithNormScale",
        policy_files=("norms", "relative"),
        is_extra=True,
    ),
    "fpgm": Entry(
        "policy geometric median (FPGM)",
        "other_policies",
        "WithGeometricMedian",
        policy_files=("geometric_median", "relative"),
    ),
    "taylor": Entry(
        "policy Taylor, layers ranked together",
        "other_policies",
        "WithTaylor",
        policy_files=("taylor", "relative"),
    ),
    "random": Entry("policy random", "other_policies", "WithRandom", policy_files=("random_choice",)),
    "uniform": Entry(
        "policy uniform", "other_policies", "WithUniform", policy_files=("norms", "relative"), is_extra=True
    ),
    "torch_pruning": Entry(
        "Torch-Pruning: train, prune, fine-tune, one cosine", "train_prune_tune", "OneCosine", is_peer=True
    ),
    "torch_pruning_early": Entry(
        "Torch-Pruning: the same, pruned between our cuts",
        "train_prune_tune",
        "PrunedEarly",
        is_peer=True,
        is_extra=True,
    ),
    "torch_pruning_global": Entry(
        "Torch-Pruning: the same, layers ranked together",
        "train_prune_tune",
        "RankedTogether",
        is_peer=True,
        is_extra=True,
    ),
    "torch_pruning_two": Entry(
        "Torch-Pruning: train, prune, fine-tune, two cosines",
        "train_prune_tune",
        "TwoCosines",
        is_peer=True,
        is_extra=True,
    ),
    "torch_pruning_sparse": Entry(
        "Torch-Pruning: group sparsity, prune, fine-tune",
        "train_prune_tune",
        "GroupSparsity",
        is_peer=True,
        is_extra=True,
    ),
    "hesso": Entry("only_train_once: HESSO", "hesso", "HessoContender", needs_peer_python=True, is_peer=True),
    "hesso_slow": Entry(
        "only_train_once: HESSO, pruned until 50 %",
        "hesso",
        "PrunedSlowly",
        needs_peer_python=True,
        is_peer=True,
        is_extra=True,
    ),
}


def add_contenders(entries: Mapping[str, Entry]) -> None:
    """Make more contenders known to this process."""
    if known := CONTENDERS.keys() & entries.keys():
        raise ValueError(
            f"there are contenders of these names already: {', '.join(sorted(known))}. Choose others."
        )
    CONTENDERS.update(entries)
