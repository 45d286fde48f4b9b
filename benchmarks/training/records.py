"""Finished runs beside their sheet.

Takes results by name, gives a JSON line each, which a clone reads as if it had run them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.sheets.sheet import RESULTS, replace_file

PLACE = RESULTS
_ENDING = ".runs.jsonl"


def recorded(name: str) -> dict[str, Any] | None:
    """What a run gave, wherever it was made; None if no sheet has it."""
    for path in sorted(PLACE.glob(f"*{_ENDING}")):
        if (result := read_records(path).get(name)) is not None:
            return result
    return None


def write_records(sheet: Path, results: Mapping[str, Mapping[str, Any]]) -> Path:
    """Add these runs to those of the sheet; one of the same name is replaced."""
    path = sheet.with_name(sheet.stem + _ENDING)
    replace_records(
        path, read_records(path) | {name: _without_places(result) for name, result in results.items()}
    )
    return path


def replace_records(path: Path, lines: Mapping[str, Mapping[str, Any]]) -> None:
    """Write these runs in place of all that are there."""
    replace_file(path, "".join(json.dumps({"run": name, **lines[name]}) + "\n" for name in sorted(lines)))


def read_records(path: Path) -> dict[str, dict[str, Any]]:
    """The runs of one file by name; none if there is no such file."""
    if not path.exists():
        return {}
    status = path.stat()
    return dict(_read(path, status.st_mtime_ns, status.st_size))


@cache
def _read(path: Path, _changed: int, _size: int) -> dict[str, dict[str, Any]]:
    found = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {result.pop("run"): result for result in found}


def _without_places(result: Mapping[str, Any]) -> dict[str, Any]:
    """Where the images lay says nothing elsewhere; what they are called does."""
    configuration = dict(result["configuration"])
    if configuration["data"] is not None:
        configuration["data"] = Path(configuration["data"]).name
    return {**result, "configuration": configuration}
