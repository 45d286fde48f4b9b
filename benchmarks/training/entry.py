"""What is known of a contender before it is imported, and those that need nothing of trainonce.

HESSO's environment has an old torch, on which trainonce can't be imported: its child reads this table alone.
All contenders are in `catalogue.py`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.training.contender import Contender


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender."""

    words: str
    kind: str
    """`module:Class` in this package."""

    prunes: bool = True
    needs_peer_python: bool = False
    needs: str | None = None
    """Another contender that has to be run first."""

    is_peer: bool = False
    is_extra: bool = False
    """Run only when asked for by name, or where a regime names it."""

    is_taught: bool = False
    """Learns from the dense model, too."""

    settings: Any = None
    """What decides, besides the code, what it does; its repr is part of the fingerprint."""

    @property
    def module(self) -> str:
        return self.kind.partition(":")[0]

    def load(self) -> type[Contender]:
        """Import its class."""
        module, _, name = self.kind.partition(":")
        return getattr(importlib.import_module(f"benchmarks.training.{module}"), name)


def _torch_pruning(words: str, name: str, *, is_extra: bool = True) -> Entry:
    return Entry(f"Torch-Pruning: {words}", f"train_prune_tune:{name}", is_peer=True, is_extra=is_extra)


def _hesso(words: str, name: str, *, is_extra: bool = False) -> Entry:
    return Entry(words, f"hesso:{name}", needs_peer_python=True, is_peer=True, is_extra=is_extra)


DENSE = {"dense": Entry("dense", "contender:Contender", prunes=False)}
PEERS = {
    "torch_pruning": _torch_pruning("train, prune, fine-tune, one cosine", "OneCosine", is_extra=False),
    "torch_pruning_early": _torch_pruning("the same, pruned between our cuts", "PrunedEarly"),
    "torch_pruning_global": _torch_pruning("the same, layers ranked together", "RankedTogether"),
    "torch_pruning_two": _torch_pruning("train, prune, fine-tune, two cosines", "TwoCosines"),
    "torch_pruning_start": _torch_pruning("prune, fine-tune", "AtTheStart"),
    "torch_pruning_start_taught": replace(
        _torch_pruning("prune, fine-tune, taught", "AtTheStart"), is_taught=True
    ),
    "torch_pruning_taught": replace(
        _torch_pruning("train, prune, fine-tune, one cosine, taught", "OneCosine"), is_taught=True
    ),
    "torch_pruning_sparse": _torch_pruning("group sparsity, prune, fine-tune", "GroupSparsity"),
    "hesso": _hesso("only_train_once: HESSO", "HessoContender"),
    "hesso_slow": _hesso("only_train_once: HESSO, pruned until 50 %", "PrunedSlowly", is_extra=True),
}


def entry_of(name: str) -> Entry:
    """The entry of any contender; trainonce is imported only where it is needed."""
    if found := (DENSE | PEERS).get(name):
        return found
    from benchmarks.training.catalogue import CONTENDERS

    return CONTENDERS[name]
