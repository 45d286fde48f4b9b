"""Whether a saved model fits the one it is loaded into: takes a manifest and a model, brings the model to the saved shapes."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from trainonce.artifact.manifest import Manifest, WrongModel, class_name, first_names, kind_of, one_line, persistent_tensors
from trainonce.channels import WrongPlan
from trainonce.plan import Plan
from trainonce.surgery import apply_plan, plans_of, snapshot

WAYS_OUT = "Build the model with the settings it was trained with, or load into the small model itself."


def check_receivers(manifest: Manifest, model: nn.Module) -> None:
    """Raise WrongModel unless every saved tensor has a place of its own, of its dtype, in a model of the saved class."""
    # The module may differ: a class that was saved from a script is `__main__.Net` there.
    if not f".{manifest.model}".endswith(f".{type(model).__qualname__}"):
        raise WrongModel(
            f"the folder holds a {manifest.model}, this model is a {class_name(model)}. Build the class that was saved, unwrapped."
        )
    tensors = persistent_tensors(model)
    for name in [*manifest.tensors, *tensors]:
        if name not in tensors:
            raise WrongModel(f"the saved model has {name}, this one has not. {WAYS_OUT}")
        if name not in manifest.tensors:
            raise WrongModel(f"this model has {name}, the saved one has not. {WAYS_OUT}")
        if tensors[name].is_meta:
            raise WrongModel(f"{name} is on the meta device and can't hold weights. Build the model on a real one, or call to_empty first.")
        wanted, found = manifest.tensors[name].dtype, kind_of(tensors[name]).dtype
        if wanted != found:
            raise WrongModel(
                f"{name} was saved as {wanted}, this model has {found}. Convert it with model.to(torch.{wanted}), or save it as {found}."
            )
    for name, first in first_names(tensors).items():
        if manifest.tied.get(name, name) != manifest.tied.get(first, first):
            raise WrongModel(f"{name} and {first} are one tensor in this model and two in the saved one. Untie them, or save them tied.")


def cut_to_fit(manifest: Manifest, model: nn.Module) -> None:
    """Make the saved cuts that the model still lacks; it is left as it was if they don't lead to the saved shapes."""
    plans = tuple(replace(plan, model=class_name(model)) for plan in manifest.plans)
    done = plans_of(model)
    if done != plans[: len(done)]:
        raise WrongModel("this model was cut by other plans than the saved one. Build it anew, or load into the model that was saved.")
    if plans and not done and not _misfit(manifest, model) and not _is_dense(model, plans[0]):
        # Built small by the user's own code: it has the sizes, and nothing to cut.
        return
    restore = snapshot(model)
    try:
        for plan in plans[len(done) :]:
            apply_plan(model, plan)
        if misfit := _misfit(manifest, model):
            raise WrongModel(f"after {len(plans)} cuts {misfit}. {WAYS_OUT}")
    except BaseException as error:
        restore()
        if isinstance(error, WrongPlan | IndexError | RuntimeError):
            raise WrongModel(one_line(error)) from None
        raise


def _misfit(manifest: Manifest, model: nn.Module) -> str | None:
    for name, tensor in persistent_tensors(model).items():
        if tuple(tensor.shape) != manifest.tensors[name].shape:
            return f"{name} has shape {tuple(tensor.shape)}, the saved one has {manifest.tensors[name].shape}"
    return None


def _is_dense(model: nn.Module, plan: Plan) -> bool:
    return all(plan.shapes.get(name) == tuple(tensor.shape) for name, tensor in model.named_parameters())
