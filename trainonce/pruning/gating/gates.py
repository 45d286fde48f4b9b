"""Run the model as if masked units were gone.

Gates on its weights, and what the loss says about each of them.

A gate multiplies the last writers of a unit (norm weight and bias, else conv or linear rows) by its mask. The
parameters keep their identity, only their content is lent, so compiled and wrapped models see the gates too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainonce.errors import LossError
from trainonce.execution import restoring
from trainonce.execution.restoring import buffers_kept, contents_kept, modes_kept
from trainonce.pruning.distributed import averaged, gradient_exchange_paused
from trainonce.pruning.units import Rows, Units

AJAR = 1e-6
"""What is left of a closed gate when its gradient is asked for.

At exactly zero a ReLU behind it passes none back.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Gates:
    """Which rows of which parameters are multiplied by the mask of each unit."""

    rows: tuple[Rows, ...]
    tensors: Mapping[str, nn.Parameter]
    num_units: int

    @classmethod
    def on(
        cls, units: Units, tensors: Mapping[str, nn.Parameter], rows: tuple[Rows, ...] | None = None
    ) -> Gates:
        """Gates on some rows of the units' writers; on all of them if none are named."""
        return cls(
            units.writers if rows is None else rows,
            {name: tensors[name] for name in {part.tensor for part in units.writers}},
            len(units),
        )

    @contextmanager
    def closed(self, masks: Tensor) -> Iterator[dict[str, Tensor]]:
        """Inside, masked units are silent; yields the ungated content by name.

        Afterwards every bit is as before.
        """
        names = list(dict.fromkeys(rows.tensor for rows in self.rows))
        with contents_kept(self.tensors[name] for name in names) as contents:
            for rows in self.rows:
                self.tensors[rows.tensor].data.mul_(self._factor(rows, masks))
            yield dict(zip(names, contents, strict=True))

    def evaluate(self, closure: Callable[[], Tensor], masks: Tensor) -> tuple[Tensor, Tensor]:
        """The loss with these masks, and its gradient with respect to each; closed gates are left ajar.

        A gate is a factor w on weights x, so the gradient of the loss with respect to w is sum(x * dL/d(w
        x)). Asking for the gradients of gated parameters only spares the others' part of the backward pass
        and leaves `.grad` alone.
        """
        masks = masks.clamp_min(AJAR)
        with (
            torch.enable_grad(),
            self.closed(masks) as whole,
            _requiring_gradients([self.tensors[name] for name in whole]),
        ):
            loss = closure()
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                found = (
                    f"a tensor of shape {tuple(loss.shape)}"
                    if isinstance(loss, Tensor)
                    else type(loss).__name__
                )
                raise LossError(
                    f"the closure must return a scalar loss, got {found}. Write: lambda: "
                    "criterion(model(images), labels)."
                )
            if not loss.requires_grad:
                raise LossError(
                    "the closure's loss has no graph. Compute it without torch.no_grad(), from the attached "
                    "model."
                )
            if not bool(torch.isfinite(loss.detach()).all()):
                return loss.detach().reshape(()).float().cpu(), torch.full((self.num_units,), float("nan"))
            names = sorted(whole)
            gradients = _gradients(loss.reshape(()), [self.tensors[name] for name in names])
        return loss.detach().reshape(()).float().cpu(), self._per_unit(
            whole, dict(zip(names, gradients, strict=True)), masks
        )

    def evaluate_everywhere(
        self, model: nn.Module, closure: Callable[[], Tensor], masks: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What `evaluate` gives, averaged over all processes; the model is left as it was."""
        with untouched(model), gradient_exchange_paused(model):
            loss, gradient = self.evaluate(closure, masks)
        return averaged(loss), averaged(gradient)

    def _factor(self, rows: Rows, masks: Tensor) -> Tensor:
        parameter = self.tensors[rows.tensor]
        factor = torch.ones(parameter.shape[rows.axis], dtype=parameter.dtype)
        factor[rows.positions] = masks.detach()[rows.units].to(parameter.dtype)
        return _on_axis(factor.to(parameter.device), rows.axis, parameter.dim())

    def _per_unit(
        self, whole: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None], masks: Tensor
    ) -> Tensor:
        total = torch.zeros(self.num_units)
        gated: dict[str, list[Rows]] = {}
        for rows in self.rows:
            gated.setdefault(rows.tensor, []).append(rows)
        for rows in self.rows:
            gradient = gradients[rows.tensor]
            if gradient is None:
                continue
            product = whole[rows.tensor].float() * gradient.float()
            for other in gated[rows.tensor]:
                if other.axis != rows.axis:
                    # Two gates on one weight: each sees the weight that the other leaves.
                    product = product * self._factor(other, masks).float()
            product = product.movedim(rows.axis, 0)
            sums = product.flatten(1).sum(dim=1) if product.dim() > 1 else product
            total.index_add_(0, rows.units, sums[rows.positions.to(sums.device)].cpu())
        return total


def _gradients(loss: Tensor, tensors: list[nn.Parameter]) -> tuple[Tensor | None, ...]:
    """The gradients of a loss; None for those that it does not depend on, but not for all."""
    try:
        gradients = torch.autograd.grad(loss, tensors, allow_unused=True)
    except RuntimeError as error:
        # What torch says of a graph that was freed by a backward pass, or whose weights an optimizer has
        # moved since.
        if "second time" in str(error) or "inplace operation" in str(error):
            raise LossError(
                "the closure's loss was computed or used before. Compute it anew in each call: lambda: "
                "criterion(model(images), labels)."
            ) from error
        raise
    if tensors and all(gradient is None for gradient in gradients):
        raise LossError(
            "the closure's loss does not depend on the attached model, so there is nothing to learn from. "
            "Compute it with that very model, not with a copy of it, and without torch.no_grad()."
        )
    return gradients


@contextmanager
def _requiring_gradients(tensors: list[nn.Parameter]) -> Iterator[None]:
    """Inside, all of them do: a model may be frozen for the moment, as a GAN's halves are in turn."""
    frozen = [tensor for tensor in tensors if not tensor.requires_grad]
    for tensor in frozen:
        tensor.requires_grad_(True)
    try:
        yield
    finally:
        for tensor in frozen:
            tensor.requires_grad_(False)


@contextmanager
def gradients_aside(
    parameters: Iterable[nn.Parameter],
) -> Iterator[Callable[[Callable[[], Tensor]], Callable[[], Tensor]]]:
    """Inside, no parameter has a gradient; afterwards all have theirs again.

    Yields what makes a closure refuse a backward pass.

    Gradients are put away, not copied: a backward pass inside makes new ones, and the user's are as they
    were.
    """
    watched_parameters = list(parameters)

    def watched(closure: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def called() -> Tensor:
            loss = closure()
            if any(parameter.grad is not None for parameter in watched_parameters):
                raise LossError(
                    "the closure must not call backward(): return the loss, the pruner takes the gradients "
                    "that it needs."
                )
            return loss

        return called

    with restoring.gradients_aside(watched_parameters):
        yield watched


def _on_axis(factor: Tensor, axis: int, num_axes: int) -> Tensor:
    return factor.reshape([-1 if place == axis else 1 for place in range(num_axes)])


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Buffers (batch-norm statistics), modes and random streams are afterwards as they were."""
    with modes_kept(model), buffers_kept(model):
        yield
