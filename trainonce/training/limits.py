"""Settings: dataclass fields that carry their type, range and help text."""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from typing import Any

from trainonce.errors import SettingError
from trainonce.messages.limits import Limits
from trainonce.messages.plain_text import shorten


def setting(default: Any, help: str, kind: type, **limits: Any) -> Any:
    """A dataclass field with its default, help text and limits."""
    return field(
        default=default, metadata={"limits": Limits(help=help, kind=kind, optional=default is None, **limits)}
    )


def limits_of(settings: Any) -> dict[str, Limits]:
    """The limits of every field of a settings class or instance."""
    return {found.name: found.metadata["limits"] for found in fields(settings) if "limits" in found.metadata}


def defaults_of(settings: type) -> dict[str, Any]:
    """The default of every field."""
    return {found.name: found.default for found in fields(settings) if found.default is not MISSING}


def check_fields(settings: Any) -> None:
    """Raise SettingError for the first value that is not allowed."""
    for name, limits in limits_of(settings).items():
        value = getattr(settings, name)
        if value is None and limits.optional:
            continue
        right = (
            isinstance(value, tuple) and all(limits.allows(item) for item in value)
            if limits.several
            else limits.allows(value)
        )
        if not right:
            raise SettingError(
                f"{name} must be {limits.describe()}, got {shorten(value)}.{limits.suggest(value)}"
            )
