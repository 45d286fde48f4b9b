"""A plan's fields, read back from JSON that may be damaged, forged or of another version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainonce.errors import PlanError
from trainonce.messages.plain_text import quoted, shown
from trainonce.structure.channels import AttributeChange, AxisCut
from trainonce.structure.norms import NormScale
from trainonce.structure.settings import SettingChange
from trainonce.structure.swaps import KINDS, Swap

PLAN_VERSION = 3
OLDER_VERSION = 1


def version_of(norms: Mapping[str, Any], newer: Mapping[str, Any]) -> int:
    """The oldest version that reads these fields: an older trainonce would leave out what it doesn't know."""
    return PLAN_VERSION if newer else 2 if norms else OLDER_VERSION


def read_fields(data: Any) -> dict[str, Any]:
    """The fields of a plan that was written as JSON; PlanError for anything that is not one."""
    if not isinstance(data, dict) or "version" not in data:
        raise PlanError(
            "this is not a plan: the field 'version' is missing. Save the model again with trainonce.save."
        )
    if type(data["version"]) is not int or not OLDER_VERSION <= data["version"] <= PLAN_VERSION:
        raise PlanError(
            f"the plan has version {quoted(data['version'])}, this trainonce reads versions up to "
            f"{PLAN_VERSION}. Install the trainonce that wrote it."
        )
    try:
        return dict(
            model=_text(data["model"]),
            kept={_text(name): _naturals(channels) for name, channels in data["kept"].items()},
            shapes={_text(name): _naturals(shape) for name, shape in data["shapes"].items()},
            cuts=tuple(
                AxisCut(_text(tensor), _natural(axis), _naturals(kept), _flag(silenced))
                for tensor, axis, kept, silenced in data["cuts"]
            ),
            attributes=tuple(
                AttributeChange(
                    _text(module),
                    _text(name),
                    None if index is None else _natural(index),
                    _natural(before),
                    _natural(after),
                )
                for module, name, index, before, after in data["attributes"]
            ),
            outline=data.get("outline"),
            norms=tuple(map(_norm, data.get("norms", []))),
            swaps=tuple(map(_swap, data.get("swaps", []))),
            settings=tuple(map(_setting, data.get("settings", []))),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PlanError(
            f"the plan is damaged ({type(error).__name__}: {shown(error)}). Save the model again."
        ) from None


def _norm(fields: Any) -> NormScale:
    module, tensor, axis, offset, power, eps, is_folded = fields
    if power not in (0.5, 1.0):
        raise TypeError(f"a norm's power is 0.5 or 1, got {quoted(power)}")
    return NormScale(
        _text(module),
        _text(tensor),
        _natural(axis),
        _natural(offset),
        float(power),
        _text(eps),
        _flag(is_folded),
    )


def _swap(fields: Any) -> Swap:
    module, kind, axis, tensors = fields
    if kind not in KINDS or type(axis) is not int or axis not in (-1, 0, 1) or type(tensors) is not list:
        raise TypeError(f"expected a module to swap, got {quoted(fields)}")
    return Swap(_text(module), kind, axis, tuple(map(_text, tensors)))


def _setting(fields: Any) -> SettingChange:
    path, before, after, like = fields
    for number in (before, after):
        if number is not None and (type(number) not in (int, float) or not number >= 0):
            raise TypeError(f"expected a number that is not negative, got {quoted(number)}")
    return SettingChange(_text(path), before, after, _text(like))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {quoted(value)}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, got {quoted(value)}")
    return value


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"expected a non-negative integer, got {quoted(value)}")
    return value


def _naturals(values: Sequence[Any]) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(f"expected a list, got {quoted(values)}")
    return tuple(_natural(value) for value in values)
