"""Where a model comes from: how a library builds it again, and whether that gives the same model."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from trainonce.errors import TrainonceError, UnknownModelError
from trainonce.execution.outline import stand_in
from trainonce.execution.restoring import modes_kept
from trainonce.messages.plain_text import kind_and_reason, shown
from trainonce.storage.artifact.about import ABOUT, About
from trainonce.storage.artifact.confirmation import placed
from trainonce.surgery.proof import outputs_of
from trainonce.surgery.slicing import PLANS, apply_plan, plans_of
from trainonce.zoo.names import LIBRARIES
from trainonce.zoo.sources import check_installed

SIZES = {"num_classes": range(2**20 + 1), "image_size": range(1, 2**14 + 1)}
"""What a folder may ask for: more would fill the memory before anything else is checked.

A model of timm without classes returns features.
"""

_PLAIN = (bool, int, float, str, type(None))


def rebuild(about: About) -> nn.Module:
    """The dense model of that name, newly built; UnknownModelError if there is none."""
    library, _, name = str(about.name).partition(":")
    if library not in LIBRARIES:
        raise UnknownModelError(f"{shown(about.name)} is not from a known library. Pass the model itself.")
    check_installed(library, str(about.name))
    source = importlib.import_module(f"trainonce.zoo.from_{library}")
    try:
        return source.rebuild_model(name, _checked(about))
    except TrainonceError:
        raise
    except Exception as error:
        raise UnknownModelError(
            f"{shown(about.name)} can't be built as it was ({kind_and_reason(error)}). Build it, and pass it."
        ) from error


def told_origins(model: nn.Module) -> Iterable[About]:
    """The name and possible arguments that a model of timm or transformers tells; nothing for any other."""
    library = type(model).__module__.partition(".")[0]
    if library not in ("timm", "transformers"):
        return ()
    return importlib.import_module(f"trainonce.zoo.from_{library}").origins_of(model)


def difference_to(model: nn.Module, about: About) -> str | None:
    """In what a model differs from the one that a name builds, cut as it was; None if in nothing.

    Weights don't count: classes of modules, shapes, and every plain setting that a module keeps do. Where a
    setting differs, which a model may have changed when it ran, both have to compute the same.
    """
    other = _without_weights(about)
    try:
        for plan in plans_of(model):
            apply_plan(other, plan)
    except TrainonceError as error:
        return shown(error, most=300)
    mine, others = dict(model.named_modules()), dict(other.named_modules())
    if mine.keys() != others.keys():
        return f"it has another module {shown(min(mine.keys() ^ others.keys()))}"
    for path, module in mine.items():
        if type(module) is not type(others[path]):
            place = path or "the model"
            return f"{place} is a {type(module).__name__}, not a {type(others[path]).__name__}"
    words = next((found for path in mine if (found := _other_setting(path, mine[path], others[path]))), None)
    return None if words is None or _computes_the_same(model, about) else words


def _other_setting(path: str, module: nn.Module, other: nn.Module) -> str | None:
    settings, wanted = _settings(module), _settings(other)
    # Libraries and trainers leave private notes on modules; a new one has none.
    noted = {name for name in settings.keys() - wanted.keys() if name.startswith("_")}
    for name in sorted(settings.keys() - noted | wanted.keys()):
        if settings.get(name) != wanted.get(name):
            place = f"{path}.{name}".lstrip(".")
            return f"{place} is {settings.get(name)!r}, not {wanted.get(name)!r}"
    return None


def _computes_the_same(model: nn.Module, about: About) -> bool:
    """Whether the model that a name builds gives the same outputs with the same weights."""
    plans = plans_of(model)
    if not plans or plans[0].outline is None:
        return False
    with torch.random.fork_rng(devices=[]):
        other = rebuild(about)
    for plan in plans:
        apply_plan(other, plan)
    first = next(model.parameters())
    other.to(device=first.device, dtype=first.dtype).load_state_dict(model.state_dict())
    example = placed(model, stand_in(plans[0].outline))
    with modes_kept(model):
        mine, others = outputs_of(model.eval(), example), outputs_of(other.eval(), example)
    return len(mine) == len(others) and all(map(torch.equal, mine, others))


def _without_weights(about: About) -> nn.Module:
    try:
        with torch.device("meta"):
            return rebuild(about)
    except UnknownModelError:
        # Some compute with numbers while they are built.
        with torch.random.fork_rng(devices=[]):
            return rebuild(about)


def _settings(module: nn.Module) -> dict[str, Any]:
    """Shapes of tensors and plain attributes; not the mode, and not what we have noted."""
    kept = {
        name: copy.copy(value)
        for name, value in vars(module).items()
        if name not in ("training", PLANS, ABOUT) and _is_plain(value)
    }
    tensors = {**module._parameters, **module._buffers}
    return kept | {name: None if part is None else tuple(part.shape) for name, part in tensors.items()}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(part) for part in value)
    return isinstance(value, _PLAIN)


def _checked(about: About) -> Mapping[str, Any]:
    """The arguments; UnknownModelError for a size that no model has."""
    for name, sizes in SIZES.items():
        found = about.arguments.get(name)
        if found is not None and (type(found) is not int or found not in sizes):
            raise UnknownModelError(
                f"{name} of {shown(about.name)} is {shown(found)}, not {sizes.start} to {sizes.stop - 1}."
            )
    return about.arguments
