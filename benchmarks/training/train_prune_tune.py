"""Torch-Pruning in the harness: train for half of the epochs (or less), prune, fine-tune for the rest."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.flops import count_image_macs
from benchmarks.peers.torchpruning import magnitude_pruner, sparse_pruner, step_down_to
from benchmarks.training.contender import Contender


class OneCosine(Contender):
    """The learning rate goes on across the cut."""

    PRUNE_AT = 0.5
    RANKS_ALL_LAYERS = False

    @property
    def first_epochs(self) -> int:
        """How many epochs come before the cut."""
        return max(1, round(self.PRUNE_AT * self.configuration.epochs))

    def prepare(self) -> None:
        """Dense training at first."""
        super().prepare()
        self._half: dict[str, Any] | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Prune when its time has come."""
        if epoch == self.first_epochs:
            self._half = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self._prune()

    def _prune(self) -> None:
        example = self.example[:1]
        target = self.configuration.keep_flops * count_image_macs(self.model, example)
        self.model.eval()
        step_down_to(
            magnitude_pruner(self.model, example, ranks_all_layers=self.RANKS_ALL_LAYERS),
            self.model,
            example,
            target,
        )
        self.model.train()
        self.optimizer = self.recipe.optimizer(self.model)

    def state_dict(self) -> dict[str, Any]:
        """With the weights that were pruned: pruning them again gives the same shape."""
        return {**super().state_dict(), "half": self._half}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Prune again if the run was past that."""
        self._half = state["half"]
        if self._half is not None:
            self.model.load_state_dict(self._half)
            self._prune()
        super().load_state_dict(state)


class AtTheStart(OneCosine):
    """Pruned before the first step, as its README does with pretrained models."""

    @property
    def first_epochs(self) -> int:
        return 0


class PrunedEarly(OneCosine):
    """Pruned between our two cuts."""

    PRUNE_AT = 0.3


class RankedTogether(OneCosine):
    """All layers ranked together."""

    RANKS_ALL_LAYERS = True


class TwoCosines(OneCosine):
    """Fine-tuning begins anew at a tenth of the first peak, as in its benchmark."""

    def learning_rate(self, step: int) -> float:
        """Two runs in one."""
        first_steps = self.first_epochs * (self.total_steps // self.configuration.epochs)
        if step < first_steps:
            return self.recipe.learning_rate(step, first_steps)
        return 0.1 * self.recipe.learning_rate(step - first_steps, self.total_steps - first_steps)


class GroupSparsity(TwoCosines):
    """With its group-sparsity regulariser during the training, at the strength of its CIFAR benchmark."""

    STRENGTH = 5e-4

    def prepare(self) -> None:
        """The regulariser knows the groups."""
        super().prepare()
        self._sparse = sparse_pruner(self.model, self.example[:1], strength=self.STRENGTH)

    def begin_epoch(self, epoch: int) -> None:
        """The regulariser looks at the groups again; after the cut it rests."""
        super().begin_epoch(epoch)
        if self._half is None:
            self._sparse.update_regularizer()

    def before_optimizer_step(self) -> None:
        if self._half is None:
            self._sparse.regularize(self.model)
