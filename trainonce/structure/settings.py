"""Numbers in the configuration of a model, by their paths: `text_config.hidden_size`, `hidden_sizes[1]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from trainonce.execution.settings import holds_settings

_PATH = re.compile(r"((?:[A-Za-z]\w*\.)*)([A-Za-z]\w*)(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A number of the model's configuration that changes, so that it builds the small model."""

    path: str
    before: int | float | None
    """None where it was not set, or where it is taken `like` an attribute."""

    after: int | float | None
    like: str = ""
    """The attribute of the cut model that it is taken from; empty where `after` says it."""


def get_setting(config: Any, path: str) -> Any:
    """The number at a path; AttributeError if there is no such place."""
    holder, name, index = _place(config, path)
    value = vars(holder).get(name)
    if index is None:
        return value
    if not isinstance(value, list | tuple) or index >= len(value):
        raise AttributeError(f"{path} is no entry of a list")
    return value[index]


def set_setting(config: Any, path: str, number: Any) -> None:
    """Change the number at a path, in place; lists are replaced, not written to."""
    holder, name, index = _place(config, path)
    if index is not None:
        value = vars(holder)[name]
        number = type(value)([*value[:index], number, *value[index + 1 :]])
    setattr(holder, name, number)


def _place(config: Any, path: str) -> tuple[Any, str, int | None]:
    match = _PATH.fullmatch(path)
    if match is None:
        raise AttributeError(f"{path} is no path")
    for name in match[1].split(".")[:-1]:
        config = vars(config).get(name)
        if not holds_settings(config):
            raise AttributeError(f"{path} is in no configuration")
    return config, match[2], None if match[3] is None else int(match[3])
