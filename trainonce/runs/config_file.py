"""Settings on disk: takes a YAML file of names and values to a dict, and a dict to YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainonce.errors import SettingError
from trainonce.runs.plain_files import UnreadableFileError, read_yaml_values


def read_yaml(file: Path) -> dict[str, Any]:
    """The names and values in a YAML file, whoever wrote it: plain data only, bounded before it is read."""
    try:
        found = read_yaml_values(file)
    except UnreadableFileError as error:
        raise SettingError(f"{error} Pass a file of settings, such as the config.yaml of a run.") from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise SettingError(f"{file} holds no settings. Write one per line, such as lr: 0.1.")
    return found


class _PlainDumper(yaml.SafeDumper):
    """Writes a list that is there twice twice: `read_yaml` takes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always."""
        return True


def to_yaml(config: Mapping[str, Any]) -> str:
    """A configuration as text, in its order."""
    return yaml.dump(dict(config), Dumper=_PlainDumper, sort_keys=False, default_flow_style=None, width=120)
