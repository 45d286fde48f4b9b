"""The content of `plan.json`: a `Manifest` of a model, to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

from torch import Tensor, nn

from trainonce.errors import ArtifactError
from trainonce.messages.plain_text import quoted, shown
from trainonce.storage.artifact.about import About
from trainonce.storage.artifact.bounds import MOST_PLANS
from trainonce.structure.plan import Plan
from trainonce.structure.succession import joined
from trainonce.surgery.slicing import plans_of

FORMAT = "trainonce"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class TensorKind:
    """Shape and dtype that a saved tensor needs of its destination."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a saved model except its weights."""

    model: str
    """Class of the model, as `module.QualName`."""

    plans: tuple[Plan, ...]
    """The cuts from the dense model to this one, oldest first."""

    tensors: Mapping[str, TensorKind]
    """Every parameter and persistent buffer, under each of its names."""

    tied: Mapping[str, str]
    """For each alias of a tied tensor, the name it is stored under."""

    about: About = field(default_factory=About)
    """What is known about the model besides."""

    def to_json(self) -> str:
        """The manifest as JSON text; `from_json` reads it back."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "model": self.model,
                "plans": [plan.to_data() for plan in self.plans],
                "tensors": {name: [list(kind.shape), kind.dtype] for name, kind in self.tensors.items()},
                "tied": dict(self.tied),
                "about": self.about.to_data(),
            }
        )

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Parse what `to_json` wrote; anything else raises ArtifactError."""
        try:
            data = json.loads(text)
            _check_version(data["format"], data["version"])
            manifest = cls(
                model=_text(data["model"]),
                plans=tuple(Plan.from_data(plan) for plan in data["plans"]),
                tensors={
                    name: TensorKind(_shape(shape), _text(dtype))
                    for name, (shape, dtype) in data["tensors"].items()
                },
                tied={name: _text(stored) for name, stored in data["tied"].items()},
                # Folders of earlier versions don't have it.
                about=About.from_data(data.get("about", {})),
            )
            for name, stored in manifest.tied.items():
                if stored in manifest.tied or manifest.tensors[stored] != manifest.tensors[name]:
                    raise ValueError(f"{shown(name)} can't be tied to {shown(stored)}")
        except ArtifactError:
            raise
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"the plan is corrupt ({type(error).__name__}: {shown(error)}). Save the model again."
            ) from None
        return manifest

    @classmethod
    def of(cls, model: nn.Module, *, is_merged: bool = False) -> Manifest:
        """The manifest of this model; its cuts become one if `is_merged`, or if there are too many."""
        for name, module in model.named_modules():
            if type(module).get_extra_state is not nn.Module.get_extra_state:
                raise ArtifactError(
                    f"{name or 'the model'} has state outside its tensors (get_extra_state). Make it a "
                    "buffer, or save it yourself."
                )
        tensors = persistent_tensors(model)
        for name, tensor in tensors.items():
            if tensor.is_meta:
                raise ArtifactError(
                    f"{name} is on the meta device and has no values. Build the model on a real device, or "
                    "save Plan.to_json alone."
                )
        first, plans = first_names(tensors), plans_of(model)
        return cls(
            model=class_name(model),
            plans=plans if len(plans) <= MOST_PLANS and not is_merged else plans and (reduce(joined, plans),),
            tensors={name: kind_of(tensor) for name, tensor in tensors.items()},
            tied={name: first[name] for name in tensors if first[name] != name},
        )


def _check_version(name: object, version: object) -> None:
    if name != FORMAT:
        raise ValueError(f"the format is {quoted(name)}")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ArtifactError(
            f"the folder has format version {quoted(version)}, this trainonce reads up to {FORMAT_VERSION}. "
            f"Upgrade trainonce, or save the model again."
        )
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ValueError(f"the version is {quoted(version)}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {quoted(value)}")
    return value


def _shape(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(size) is int and size >= 0 for size in value):
        raise TypeError(f"expected a shape, got {quoted(value)}")
    return tuple(value)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer under each of its names, non-persistent ones included."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def persistent_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and persistent buffer, under each of its names."""
    fleeting = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }
    return {name: tensor for name, tensor in named_tensors(model).items() if name not in fleeting}


def first_names(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """For each name, the first name of the same tensor."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in tensors.items()}


def class_name(model: nn.Module) -> str:
    """Class of the model, as `module.QualName`."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def kind_of(tensor: Tensor) -> TensorKind:
    """Shape and dtype of a tensor."""
    return TensorKind(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
