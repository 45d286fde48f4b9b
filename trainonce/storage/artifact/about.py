"""What a model is and what it is fed with: its name and arguments, its classes, its preprocessing.

A model carries it as plain data, and its folder as JSON; both come from elsewhere and are checked when read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from trainonce.errors import ArtifactError
from trainonce.messages.plain_text import quoted

ABOUT = "_trainonce_about"
"""The attribute under which a model carries what is known about it: plain data, also in a pickle."""

MOST_BYTES = 2**20
"""Of all that is written about one model; the names of 21,000 classes need half of it."""

_NAME = re.compile(r"[\w.]+:[\w./@-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preprocessing:
    """How an image becomes the model's input: RGB from 0 to 1, resized, then `(image - mean) / std`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    """Height and width of the input in pixels."""

    shorter_side: int | None = None
    """If given, the shorter side is resized to this and the center is cut out; else both are resized."""

    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        numbers = [*self.mean, *self.std]
        if not numbers or len(self.mean) != len(self.std):
            raise ValueError(f"mean and std have {len(self.mean)} and {len(self.std)} channels")
        if not all(_is_number(number) for number in numbers) or min(self.std) <= 0:
            raise ValueError(f"mean {quoted(self.mean)} and std {quoted(self.std)} are not a normalization")
        for size in (self.size, self.size if self.shorter_side is None else self.shorter_side):
            if type(size) is not int or not 1 <= size <= 2**16:
                raise ValueError(f"the size {quoted(size)} is not a number of pixels")
        if not isinstance(self.interpolation, str) or not self.interpolation.isidentifier():
            raise ValueError(f"the interpolation is {quoted(self.interpolation)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """Name, arguments, classes and preprocessing of a model; loading weights needs none of it."""

    name: str | None = None
    """How it is built, such as `timm:resnet18`; None if the user's own code builds it."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments it is built with, such as `{"num_classes": 10}`."""

    classes: tuple[str, ...] = ()
    """The names of its outputs, in their order."""

    preprocessing: Preprocessing | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise ValueError(f"{quoted(self.name)} is not a model name, such as timm:resnet18")
        if not isinstance(self.arguments, Mapping) or not _is_plain(self.arguments):
            raise ValueError("the arguments are not a dict of plain values")
        if not all(isinstance(name, str) for name in self.classes):
            raise ValueError("the classes are not a list of names")

    def to_data(self) -> dict[str, Any]:
        """The known fields as plain JSON values."""
        known = {
            "name": self.name,
            "arguments": dict(self.arguments),
            "classes": list(self.classes),
            "preprocessing": None if self.preprocessing is None else asdict(self.preprocessing),
        }
        return {key: value for key, value in known.items() if value}

    @classmethod
    def from_data(cls, data: Any) -> About:
        """Read what `to_data` returned; ValueError or TypeError for anything else."""
        if not isinstance(data, Mapping):
            raise TypeError(f"expected a model's description, got {quoted(data)}")
        fed = data.get("preprocessing")
        return cls(
            name=data.get("name"),
            arguments=data.get("arguments", {}),
            classes=_texts(data.get("classes", [])),
            preprocessing=None if fed is None else _preprocessing(fed),
        )

    def added_to(self, other: About) -> About:
        """The other, with the fields known here replaced."""
        return About.from_data(other.to_data() | self.to_data())

    def to_json(self) -> str:
        """The JSON text; ArtifactError if it is too long."""
        text = json.dumps(self.to_data())
        if len(text) > MOST_BYTES:
            raise ArtifactError(
                f"the description of this model takes {len(text)} bytes, more than "
                f"{MOST_BYTES}. Use shorter class names."
            )
        return text


def about_of(model: nn.Module) -> About:
    """The name, arguments, classes and preprocessing of a model, as far as they are known.

    Example: `trainonce.about_of(small).classes`
    """
    found = model.__dict__.get(ABOUT)
    try:
        return About.from_data(found or {})
    except (TypeError, ValueError):
        # Somebody's own attribute of that name, or a pickle of a later version.
        return About()


def note_about(model: nn.Module, about: About) -> None:
    """Add to what a model carries; what is not known leaves what it has."""
    if about.to_data():
        model.__dict__[ABOUT] = json.loads(about.added_to(about_of(model)).to_json())


def _preprocessing(data: Any) -> Preprocessing:
    if not isinstance(data, Mapping):
        raise TypeError(f"expected preprocessing settings, got {quoted(data)}")
    names = {"mean", "std", "size", "shorter_side", "interpolation"}
    known: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
    }
    if unknown := set(known) - names:
        raise ValueError(f"preprocessing settings have no {quoted(min(unknown, key=str))}")
    return Preprocessing(**known)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"expected a list of names, got {quoted(value)}")
    return tuple(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_plain(value: Any, depth: int = 8) -> bool:
    if value is None or isinstance(value, bool | int | str):
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    if not depth:
        return False
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(part, depth - 1) for key, part in value.items())
    return isinstance(value, list | tuple) and all(_is_plain(part, depth - 1) for part in value)
