"""Settings as a page shows them: takes values of a configuration, gives short text, changed ones first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainonce.messages.plain_text import in_one_line

ALWAYS_FIRST = ("model", "data")


@dataclass(frozen=True, slots=True)
class Setting:
    """A name and a value, with the default where that is another one."""

    name: str
    value: str
    default: str = ""


def shown_value(value: Any) -> str:
    """A value as `config.yaml` has it, in one short line."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == []:
        return "none"
    return in_one_line(", ".join(map(shown_value, value)) if isinstance(value, list) else value, 300)


def shown_values(values: Mapping[str, Any]) -> list[Setting]:
    """Names and values, without those that are empty."""
    return [
        Setting(in_one_line(name, 60), shown_value(value))
        for name, value in values.items()
        if value not in (None, [])
    ]


def split_settings(
    config: Mapping[str, Any], changed: Mapping[str, Any] | None
) -> tuple[list[Setting], list[Setting]]:
    """The settings that differ from their defaults, and the rest; all are rest if no defaults are known."""
    if changed is None:
        return [], shown_values(config)
    first = [name for name in ALWAYS_FIRST if name in config]
    first += [name for name in config if name in changed and name not in first]
    told = [
        Setting(
            in_one_line(name, 60),
            shown_value(config[name]),
            shown_value(changed[name]) if name in changed and name not in ALWAYS_FIRST else "",
        )
        for name in first
    ]
    return told, shown_values({name: value for name, value in config.items() if name not in first})
