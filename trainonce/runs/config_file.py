"""Settings on disk: reads a YAML file into a dict, and writes a dict as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainonce.errors import SettingError
from trainonce.runs.plain_files import UnreadableFileError, read_yaml_values


def read_yaml(file: Path) -> dict[str, Any]:
    """The settings in a YAML file, which anyone may have written: plain data only, of bounded size."""
    try:
        found = read_yaml_values(file)
    except UnreadableFileError as error:
        raise SettingError(f"{error} Pass a file of settings, such as the config.yaml of a run.") from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise SettingError(f"{file} has no settings. Write one per line, such as lr: 0.1.")
    return found


class _PlainDumper(yaml.SafeDumper):
    """Writes no aliases, which `read_yaml` refuses: a list that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always."""
        return True


def to_yaml(config: Mapping[str, Any]) -> str:
    """The configuration as text, in its own order."""
    return yaml.dump(dict(config), Dumper=_PlainDumper, sort_keys=False, default_flow_style=None, width=120)
