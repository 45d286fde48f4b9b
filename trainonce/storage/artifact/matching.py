"""Checks that a saved model fits the one it is loaded into, and cuts that one to the saved shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from trainonce.errors import ModelMismatchError, PlanError
from trainonce.execution.restoring import snapshot
from trainonce.messages.plain_text import quoted, shown
from trainonce.storage.artifact.confirmation import confirm_sizes
from trainonce.storage.artifact.manifest import Manifest, class_name, first_names, kind_of, persistent_tensors
from trainonce.structure.plan import Plan
from trainonce.surgery.fitting import check_fits
from trainonce.surgery.slicing import apply_plan, plans_of
from trainonce.surgery.swaps import check_swaps, swap_modules

WAYS_OUT = "Build the model with the settings it was trained with, or already as small as the saved one."


def check_receivers(manifest: Manifest, model: nn.Module) -> None:
    """Raise ModelMismatchError unless the model has the saved class, tensor names, dtypes and ties."""
    # The module may differ: a class that was saved from a script is `__main__.Net` there.
    if not f".{manifest.model}".endswith(f".{type(model).__qualname__}"):
        raise ModelMismatchError(
            f"the folder contains a {shown(manifest.model)}, but this model is a {class_name(model)}. Build "
            "the class that was saved, without a wrapper."
        )
    tensors = persistent_tensors(model)
    for name in [*manifest.tensors, *tensors]:
        if name not in tensors:
            raise ModelMismatchError(f"the saved model has {shown(name)}, this one doesn't. {WAYS_OUT}")
        if name not in manifest.tensors:
            raise ModelMismatchError(f"this model has {name}, the saved one doesn't. {WAYS_OUT}")
        if tensors[name].is_meta:
            raise ModelMismatchError(
                f"{name} is on the meta device and can't hold weights. Build the model on a real device, or "
                "call to_empty first."
            )
        wanted, found = shown(manifest.tensors[name].dtype), kind_of(tensors[name]).dtype
        if wanted != found:
            raise ModelMismatchError(
                f"{name} was saved as {wanted}, this model has {found}. Convert it with "
                f"model.to(torch.{wanted}), or save it as {found}."
            )
        if _is_larger(manifest.tensors[name].shape, tuple(tensors[name].shape)):
            raise ModelMismatchError(f"{_misfit_of(manifest, name, tensors[name].shape)}. {WAYS_OUT}")
    for name, first in first_names(tensors).items():
        if manifest.tied.get(name, name) != manifest.tied.get(first, first):
            raise ModelMismatchError(
                f"{name} and {first} are tied in this model but not in the saved one. Untie them, or save "
                "them tied."
            )


def cut_to_fit(manifest: Manifest, model: nn.Module, *, example: Any = None) -> Callable[[], None]:
    """Apply the saved cuts that the model still lacks; it is unchanged if they don't give the saved shapes.

    Returns a function that undoes them, as long as no data was written in place.
    """
    plans = tuple(replace(plan, model=class_name(model)) for plan in manifest.plans)
    done = plans_of(model)
    if done != plans[: len(done)]:
        raise ModelMismatchError(
            "this model was cut by other plans than the saved one. Build a new one, or load into the model "
            "that was saved."
        )
    restore = snapshot(model)
    if plans and not done and not _misfit(manifest, model) and not _is_dense(model, plans[0]):
        # Built small by the user's own code: nothing to cut, but a LayerNorm divides by what it has.
        with _undoing(restore):
            _swap_alone(model, plans)
        return restore
    with _undoing(restore):
        if len(plans) > len(done):
            check_fits(model, plans[len(done)])
            confirm_sizes(model, plans[len(done) :], example)
        for plan in plans[len(done) :]:
            apply_plan(model, plan)
        if misfit := _misfit(manifest, model):
            raise ModelMismatchError(f"after {len(plans)} cuts {misfit}. {WAYS_OUT}")
    return restore


def _swap_alone(model: nn.Module, plans: Sequence[Plan]) -> None:
    modules = dict(model.named_modules())
    for plan in plans:
        check_swaps(modules, plan)
        swap_modules(model, plan)


@contextmanager
def _undoing(restore: Callable[[], None]) -> Iterator[None]:
    """Inside, whatever fails is undone; what a plan is to blame for becomes a ModelMismatchError."""
    try:
        yield
    except BaseException as error:
        restore()
        if isinstance(error, PlanError | IndexError | KeyError | RuntimeError):
            raise ModelMismatchError(shown(error, most=500)) from None
        raise


def _misfit(manifest: Manifest, model: nn.Module) -> str | None:
    for name, tensor in persistent_tensors(model).items():
        if tuple(tensor.shape) != manifest.tensors[name].shape:
            return _misfit_of(manifest, name, tensor.shape)
    return None


def _misfit_of(manifest: Manifest, name: str, shape: tuple[int, ...]) -> str:
    return f"{name} has shape {tuple(shape)}, the saved one has {quoted(manifest.tensors[name].shape)}"


def _is_larger(saved: tuple[int, ...], own: tuple[int, ...]) -> bool:
    """Whether no cut of `own` gives `saved`; larger tensors are never read."""
    return len(saved) != len(own) or any(theirs > mine for theirs, mine in zip(saved, own, strict=True))


def _is_dense(model: nn.Module, plan: Plan) -> bool:
    return all(plan.shapes.get(name) == tuple(tensor.shape) for name, tensor in model.named_parameters())
