"""Gates on weights: the loss as if masked units were gone, and its gradient for each mask.

A gate multiplies the last writers of a unit (weight and bias of a norm, else rows of a conv or linear) by its
mask. Parameters are changed in place and restored, so compiled and wrapped models see the gates, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from trainonce.errors import LossError
from trainonce.execution import restoring
from trainonce.execution.restoring import buffers_kept, contents_kept, modes_kept
from trainonce.pruning.distributed import averaged, gradient_exchange_paused
from trainonce.pruning.units import Rows, Units

AJAR = 1e-6
"""The factor of a closed gate whose gradient is needed: at exactly 0, a ReLU behind it passes none back."""


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
        """Gates on some rows of the units' writers; on all of them if `rows` is None."""
        return cls(
            units.writers if rows is None else rows,
            {name: tensors[name] for name in {part.tensor for part in units.writers}},
            len(units),
        )

    def on_tensors(self, tensors: Mapping[str, nn.Parameter]) -> Gates:
        """The same gates on other parameters of the same names."""
        return replace(self, tensors={name: tensors[name] for name in self.tensors})

    @contextmanager
    def closed(self, masks: Tensor) -> Iterator[dict[str, Tensor]]:
        """A context in which masked units output zero; yields the original parameters by name.

        Every bit is restored afterwards.
        """
        names = list(dict.fromkeys(rows.tensor for rows in self.rows))
        with contents_kept(self.tensors[name] for name in names) as contents:
            for rows in self.rows:
                self.tensors[rows.tensor].data.mul_(self._factor(rows, masks))
            yield dict(zip(names, contents, strict=True))

    def evaluate(self, closure: Callable[[], Tensor], masks: Tensor) -> tuple[Tensor, Tensor]:
        """The loss with these masks, and its gradient with respect to each mask.

        A gate is a factor w on weights x, so the gradient with respect to w is sum(x * dL/d(w x)). Only
        gradients of gated parameters are computed: that saves part of the backward pass and leaves `.grad`
        alone.
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
                    f"the loss function must return a scalar loss, got {found}. Pass lambda: "
                    "criterion(model(images), labels)."
                )
            if not loss.requires_grad:
                raise LossError(
                    "the loss has no autograd graph. Compute it from the attached model, without "
                    "torch.no_grad()."
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
        """What `evaluate` returns, averaged over all ranks; the model is left as it was."""
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
            rows.add_to_units(total, rows.sums(product))
        return total


def _gradients(loss: Tensor, tensors: list[nn.Parameter]) -> tuple[Tensor | None, ...]:
    """The gradients of a loss, None where it doesn't depend on a tensor; LossError if it depends on none."""
    try:
        gradients = torch.autograd.grad(loss, tensors, allow_unused=True)
    except RuntimeError as error:
        # torch's words for a graph that a backward pass has freed, or whose weights have changed since.
        if "second time" in str(error) or "inplace operation" in str(error):
            raise LossError(
                "the loss was computed or used before. Compute a new one in each call: lambda: "
                "criterion(model(images), labels)."
            ) from error
        if "use_reentrant" in str(error):
            raise LossError(
                "the loss recomputes activations with use_reentrant=True, which only a whole backward pass "
                "can do. Use torch.utils.checkpoint with use_reentrant=False, or a policy that needs no loss."
            ) from None
        raise
    if tensors and all(gradient is None for gradient in gradients):
        raise LossError(
            "the loss does not depend on the attached model, so there is nothing to learn from it. "
            "Compute it with that model, not a copy of it, and without torch.no_grad()."
        )
    return gradients


@contextmanager
def _requiring_gradients(tensors: list[nn.Parameter]) -> Iterator[None]:
    """A context in which all tensors require gradients: a GAN freezes its halves in turn."""
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
    """A context in which no parameter has a gradient; all get theirs back afterwards.

    Yields a wrapper for closures that raises LossError if they call backward. Gradients are set aside, not
    copied.
    """
    watched_parameters = list(parameters)

    def watched(closure: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def called() -> Tensor:
            loss = closure()
            if any(parameter.grad is not None for parameter in watched_parameters):
                raise LossError(
                    "the loss function must not call backward(). Return the loss; the pruner computes the "
                    "gradients it needs."
                )
            return loss

        return called

    with restoring.gradients_aside(watched_parameters):
        yield watched


def _on_axis(factor: Tensor, axis: int, num_axes: int) -> Tensor:
    return factor.reshape([-1 if place == axis else 1 for place in range(num_axes)])


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """A context that restores buffers (batch-norm statistics), train/eval modes and random states."""
    with modes_kept(model), buffers_kept(model):
        yield
