"""Which numbers of a model's configuration give which of its sizes, found by building it with others.

A model of the Hugging Face kind is built from a configuration alone: `type(model)(config)`. Built on the meta
device with one number changed, it shows which axes follow that number.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from trainonce.execution.settings import holds_settings
from trainonce.structure.channels import AttributeChange, AxisCut
from trainonce.structure.equality import ComparedByContent
from trainonce.structure.settings import SettingChange, set_setting

Key = tuple[str, str, int]
"""A number that building shows: ("axis", tensor, axis), or ("attribute", "module.name", -1).

Numbers that are not whole are ("number", "module.name", -1).
"""

_KINDS = {int: "attribute", float: "number"}

_OTHER_THINGS = re.compile(
    r"_id$|_ids$|token|vocab|layers|depth|position|label|window|version|seed|length|beam|(^|_)top_|epoch"
)
"""Words in names of settings that say nothing about widths."""

_WIDTHS = re.compile(r"inner|intermediate|ffn|dim|size|width|heads")
"""Words in names of settings that may be None: the width then follows another one."""

_LONGEST_LIST, _SOME_WIDTH = 16, 24
_READ_IF_THERE = ("head_dim",)
"""Settings that models of a family read though their configuration may not have them."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting(ComparedByContent):
    """One number of a configuration, and by how much what follows it grows with it."""

    path: str
    value: int | float
    is_absent: bool
    """Whether the configuration has None there, and the model takes `value`."""

    slopes: Mapping[Key, float]

    @property
    def axes(self) -> list[tuple[str, int]]:
        """The tensors whose sizes follow it, each with the axis."""
        return [(key[1], key[2]) for key in self.slopes if key[0] == "axis"]

    @property
    def must_stay(self) -> str | None:
        """A number that the model computes with and that follows this size (a root of it); None if none."""
        return (
            next((key[1] for key in self.slopes if key[0] == "number"), None)
            if type(self.value) is int
            else None
        )


@dataclass(frozen=True, slots=True, eq=False)
class Configuration(ComparedByContent):
    """What a model is built from, and its settings once they were looked for."""

    kind: type[nn.Module]
    config: Any
    settings: tuple[Setting, ...] = ()
    numbers: Mapping[Key, float] = field(default_factory=dict)
    """Every number of a model that is built from this; empty if not looked for."""

    epsilons: Mapping[str, str] = field(default_factory=dict)
    """For each setting that norms add, the attribute of one of them."""

    @property
    def name(self) -> str:
        """The class of the configuration, for reasons."""
        return type(self.config).__name__

    def solved(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        cuts: tuple[AxisCut, ...],
        attributes: tuple[AttributeChange, ...],
    ) -> tuple[SettingChange, ...]:
        """How the settings must change for a cut."""
        shifts = {
            ("axis", cut.tensor, cut.axis): len(cut.kept) - shapes[cut.tensor][cut.axis] for cut in cuts
        }
        moved = {("attribute", change.place, -1): change.after - change.before for change in attributes}
        found = _solve(self.settings, shifts, moved)
        changes = [
            SettingChange(
                setting.path, None if setting.is_absent else setting.value, round(setting.value + shift)
            )
            for setting in self.settings
            if (shift := found.get(setting.path, 0)) or setting.is_absent
        ]
        lost = {cut.tensor for cut in cuts}
        changes += [
            SettingChange(path, None, None, like)
            for path, like in self.epsilons.items()
            if any(name.rpartition(".")[0] == like.rpartition(".")[0] for name in lost)
        ]
        return tuple(changes)

    def gives(self, changes: tuple[SettingChange, ...], shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether a model built with these changes has these shapes, and computes with the same numbers."""
        config = copy.deepcopy(self.config)
        for change in changes:
            if change.after is not None:
                set_setting(config, change.path, change.after)
        built = _numbers_of(self.kind, config)
        before = self.numbers or _numbers_of(self.kind, self.config)
        if built is None or before is None or built.keys() != before.keys():
            return False
        sizes = {
            ("axis", name, axis): size for name, shape in shapes.items() for axis, size in enumerate(shape)
        }
        # Numbers that are no sizes, such as a scale that is the root of a width.
        others = {key: number for key, number in before.items() if key[0] == "number"}
        return sizes | others == {key: number for key, number in built.items() if key[0] != "attribute"}


def find_configuration(model: nn.Module) -> Configuration | None:
    """What a model says it was built from; None if it says nothing, or something of another kind."""
    config = vars(model).get("config")
    if not holds_settings(config) or not callable(getattr(model, "save_pretrained", None)):
        return None
    try:
        # A partition can be pickled, which a class made in a function can't.
        is_known = "<locals>" not in type(model).__qualname__
        return Configuration(type(model), copy.deepcopy(config)) if is_known else None
    except Exception:
        return None


def looked_into(configuration: Configuration, shapes: Mapping[str, tuple[int, ...]]) -> Configuration | None:
    """The configuration with its settings; None if it doesn't build a model of these shapes."""
    if not configuration.gives((), shapes):
        return None
    kind, config = configuration.kind, copy.deepcopy(configuration.config)
    sizes = _numbers_of(kind, config)
    assert sizes is not None, "it was built just now"
    # Widths that follow others as long as they are not set get numbers of their own first.
    absent = [
        path for path, value in _candidates(config) if value is None and _is_pinned(kind, config, path, sizes)
    ]
    found = [
        replace(setting, is_absent=path in absent)
        for path, value in _candidates(config)
        if value is not None and (setting := _probed(kind, config, sizes, path, value)) is not None
    ]
    return Configuration(kind, config, tuple(found), sizes)


def _candidates(config: Any, prefix: str = "") -> Iterator[tuple[str, int | float | None]]:
    yield from _own_candidates(config, prefix)
    for name in _READ_IF_THERE:
        if name not in vars(config):
            yield f"{prefix}{name}", None


def _own_candidates(config: Any, prefix: str) -> Iterator[tuple[str, int | float | None]]:
    value: Any
    for name, value in vars(config).items():
        path = f"{prefix}{name}"
        if name.startswith("_") or _OTHER_THINGS.search(name):
            continue
        if holds_settings(value):
            yield from _candidates(value, f"{path}.")
        elif (
            (type(value) is int and value > 1)
            or (type(value) is float and "eps" in name)
            or (value is None and _WIDTHS.search(name))
        ):
            yield path, value
        elif isinstance(value, list | tuple) and len(value) <= _LONGEST_LIST:
            for index, item in enumerate(value):
                if type(item) is int and item > 1:
                    yield f"{path}[{index}]", item


def _is_pinned(kind: type[nn.Module], config: Any, path: str, sizes: Mapping[Key, float]) -> bool:
    """Set what is None to the number that the model takes for it; whether there is one."""
    trial = _built(kind, config, path, _SOME_WIDTH)
    axes = [key for key in sizes if key[0] == "axis"]
    moved = {int(sizes[key]) for key in axes if trial is not None and trial.get(key) != sizes[key]}
    ratios = {
        _SOME_WIDTH * sizes[key] / trial[key]
        for key in axes
        if trial is not None and trial.get(key) not in (None, 0, sizes[key])
    }
    for number in sorted({*moved, *(int(ratio) for ratio in ratios if ratio.is_integer())}):
        if _built(kind, config, path, number) == sizes:
            set_setting(config, path, number)
            return True
    return False


def _built(kind: type[nn.Module], config: Any, path: str, number: int | float) -> Mapping[Key, float] | None:
    """The numbers of a model that is built with one setting changed; None if it can't be."""
    config = copy.deepcopy(config)
    try:
        set_setting(config, path, number)
    except Exception:
        return None
    return _numbers_of(kind, config)


def _probed(
    kind: type[nn.Module], config: Any, sizes: Mapping[Key, float], path: str, value: int | float
) -> Setting | None:
    """What follows one setting; None if nothing does, or if nothing can be built with another number."""
    for other in (2 * value, value // 2, value + 1) if type(value) is int else (2 * value,):
        trial = _built(kind, config, path, other)
        if trial is not None and trial.keys() == sizes.keys():
            slopes = {
                key: (trial[key] - sizes[key]) / (other - value) for key in sizes if trial[key] != sizes[key]
            }
            return Setting(path, value, False, slopes) if slopes else None
    return None


def _numbers_of(kind: type[nn.Module], config: Any) -> dict[Key, float] | None:
    """Every size and every number that a model remembers, built on the meta device; None if it can't be."""
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = copy.deepcopy(config)
            # It is what saving does: some configurations want heads to divide the width.
            if callable(validate := getattr(config, "validate", None)):
                validate()
            model = kind(config)
    except Exception:
        return None
    found: dict[Key, float] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found |= {("axis", name, axis): float(size) for axis, size in enumerate(tensor.shape)}
    for path, module in model.named_modules():
        for name, number in vars(module).items():
            kind_of_number = _KINDS.get(type(number))
            if kind_of_number is not None:
                found[kind_of_number, f"{path}.{name}".lstrip("."), -1] = float(number)
    return found


def _solve(
    settings: tuple[Setting, ...], shifts: Mapping[Key, int], moved: Mapping[Key, int]
) -> dict[str, float]:
    """How far each setting moves: axes that follow one unknown setting alone come first, then attributes."""
    known = {setting.path: 0.0 for setting in settings if setting.must_stay}
    axes = sorted({key for setting in settings for key in setting.slopes if key[0] == "axis"})
    attributes = sorted({key for setting in settings for key in setting.slopes if key in moved})
    while True:
        if _settled(settings, axes, shifts, known) or _settled(settings, attributes, moved, known):
            continue
        # What a module remembers as it is in the configuration, and has not changed, stays.
        still = next(
            (
                setting.path
                for setting in settings
                if setting.path not in known
                and any(
                    key[0] == "attribute" and slope == 1 and key not in moved
                    for key, slope in setting.slopes.items()
                )
            ),
            None,
        )
        if still is None:
            return known
        known[still] = 0.0


def _settled(
    settings: tuple[Setting, ...], keys: list[Key], shifts: Mapping[Key, int], known: dict[str, float]
) -> bool:
    """Whether one more setting is known, because something follows no other unknown one."""
    for key in keys:
        unknown = [setting for setting in settings if key in setting.slopes and setting.path not in known]
        if len(unknown) == 1:
            done = sum(
                setting.slopes[key] * known[setting.path]
                for setting in settings
                if key in setting.slopes and setting.path in known
            )
            known[unknown[0].path] = (shifts.get(key, 0) - done) / unknown[0].slopes[key]
            return True
    return False
