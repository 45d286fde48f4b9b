"""Settings: dataclass fields that carry their type, range and help text."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any

from trainonce.errors import SettingError
from trainonce.messages.limits import Limits
from trainonce.messages.plain_text import shorten


def setting(default: Any, help: str, kind: type, **limits: Any) -> Any:
    """A dataclass field with its default, help text and limits."""
    limits = {"optional": default is None} | limits
    return field(default=default, metadata={"limits": Limits(help=help, kind=kind, **limits)})


def dependent_setting(help: str, kind: type, **limits: Any) -> Any:
    """A field whose default depends on others: the class replaces None when it is made."""
    return setting(None, help, kind, optional=False, **limits)


def limits_of(settings: Any) -> dict[str, Limits]:
    """The limits of every field of a settings class or instance."""
    return {found.name: found.metadata["limits"] for found in fields(settings) if "limits" in found.metadata}


def defaults_of(settings: type) -> dict[str, Any]:
    """The default of every field, as an object made without arguments has it."""
    plain = settings()
    return {found.name: getattr(plain, found.name) for found in fields(settings)}


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
