"""The facts of a run from its folder: takes files that may be damaged, gives what page and table can show.

What is there must be of the right kind; what is missing is left out of the report. Sizes that would make a
page without end are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainonce.model_names import how_to_resume
from trainonce.plain_text import in_one_line
from trainonce.report.plain_files import (
    MOST_LINES,
    UnreadableFileError,
    read_json_lines,
    read_json_values,
    read_yaml_values,
)

REPORT, CONFIG, METRICS, ENVIRONMENT = "report.json", "config.yaml", "metrics.jsonl", "env.json"
VERSION = 1
MOST_LAYERS = 5_000
MOST_NAMES = 1_000
"""Of settings, or of facts about one thing."""
MOST_CHANNELS = 2**20
"""In one layer."""
MOST_CHANNELS_IN_ALL = 2**24
LARGEST_NUMBER = 1e100

Check = Callable[[Any, str], None]
"""Takes a value and where it was found, raises ValueError if it is not of that kind."""


class NoReport(ValueError):
    """A folder without a run, or with one that has not come to its first epoch."""


def read_facts(folder: Path) -> dict[str, Any]:
    """The facts of a finished run, or what there is of one that still trains."""
    try:
        if (folder / REPORT).is_file():
            facts = read_json_values(folder / REPORT)
        elif (folder / CONFIG).is_file():
            facts = _facts_so_far(folder)
        else:
            raise NoReport(f"there is no run in {folder}. Pass the folder that trainonce train wrote, which holds {CONFIG}.")
        check_facts(facts)
    except (UnreadableFileError, _WrongKind) as error:
        raise NoReport(f"the files in {folder} are damaged: {error} Copy the folder again, or train again.") from None
    return facts


def check_facts(facts: Any) -> None:
    """Raise ValueError unless page, card and table can show this."""
    _REPORT(facts, "the report")
    if sum(layer["total"] for layer in facts.get("layers") or ()) > MOST_CHANNELS_IN_ALL:
        raise _WrongKind(f"its layers have more than {MOST_CHANNELS_IN_ALL} channels.")
    for layer in facts.get("layers") or ():
        total, alive, kept = layer["total"], layer["alive"], layer["kept"]
        if not 0 <= alive <= total or (kept is not None and not all(0 <= channel < total for channel in kept)):
            raise _WrongKind(f"the layer {in_one_line(layer['name'], 60)!r} has channels that are not there.")
    for record in facts["history"]:
        for name, counts in (record.get("alive") or {}).items():
            if len(counts) != 2 or not 0 <= counts[0] <= counts[1] or counts[1] < 1:
                raise _WrongKind(f"the layer {in_one_line(name, 60)!r} has channels that are not there.")


def _facts_so_far(folder: Path) -> dict[str, Any]:
    config = read_yaml_values(folder / CONFIG)
    history = read_json_lines(folder / METRICS) if (folder / METRICS).is_file() else []
    if not history:
        how = how_to_resume(folder, config if isinstance(config, dict) else {})
        raise NoReport(f"the run in {folder} has not finished its first epoch. Wait, or go on with {how}.")
    _listed(_RECORD)(history, METRICS)
    last = history[-1]
    return {
        "version": VERSION,
        "history": history,
        "config": config,
        "environment": read_json_values(folder / ENVIRONMENT) if (folder / ENVIRONMENT).is_file() else {},
        "before": None,
        "after": {name: last.get(name) for name in ("top1", "top5", "validation_loss")},
        "agreement": None,
        "layers": [],
        "schedule": None,
        "seconds": last.get("seconds"),
    }


class _WrongKind(ValueError):
    pass


def _refuse(value: Any, where: str, wanted: str) -> _WrongKind:
    found = in_one_line(repr(value)[:200], 40) if isinstance(value, str | float | bool | None) else type(value).__name__
    return _WrongKind(f"{in_one_line(where, 80)} is {found}, not {wanted}.")


def _number(value: Any, where: str) -> None:
    """A number; NaN and infinities are what a run that diverged has measured."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(value, where, "a number")
    if not (isinstance(value, float) and not math.isfinite(value)) and abs(value) > LARGEST_NUMBER:
        raise _refuse("a number beyond all bounds", where, "a number")


def _finite(value: Any, where: str) -> None:
    _number(value, where)
    if not math.isfinite(value):
        raise _refuse(value, where, "a finite number")


def _whole(least: int = 0, most: int = 2**63) -> Check:
    def check(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _refuse(value, where, f"a whole number from {least} to {most}")

    return check


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str) or not value.isprintable():
        raise _refuse(value, where, "a text in one line")


def _optional(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


def _listed(check: Check, most: int = 2**31) -> Check:
    def check_all(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) > most:
            raise _refuse(value, where, f"a list of at most {most}")
        for index, item in enumerate(value):
            check(item, f"{where}[{index}]")

    return check_all


def _named(check: Check, most: int = 2**31) -> Check:
    def check_all(value: Any, where: str) -> None:
        if not isinstance(value, dict) or len(value) > most:
            raise _refuse(value, where, f"at most {most} names with values")
        for name, item in value.items():
            _text(name, f"a name in {where}")
            check(item, f"{where}.{in_one_line(name, 40)}")

    return check_all


def _fields(known: Mapping[str, Check], needed: str = "") -> Check:
    """A dict in which known names have values of their kind; other names, if not too many, may have any."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict) or len(value) > MOST_NAMES:
            raise _refuse(value, where, f"at most {MOST_NAMES} names with values")
        for name in needed.split():
            if name not in value:
                raise _WrongKind(f"{in_one_line(where, 80)} has no {name}.")
        for name in known.keys() & value.keys():
            known[name](value[name], f"{where}.{name}")

    return check


_NUMBER, _COUNT = _optional(_number), _optional(_whole())
_CONFIG = _fields({"keep_flops": _optional(_finite), "keep_params": _optional(_finite)})
_LATENCY = _optional(_fields(dict.fromkeys(("median", "low", "high"), _finite), "median low high"))
_SCORES = dict.fromkeys(("top1", "top5", "validation_loss"), _NUMBER)
_MODEL = _fields({**_SCORES, **dict.fromkeys(("macs", "parameters", "bytes"), _COUNT), "latency_ms": _LATENCY})
_RECORD = _fields(
    {
        **_SCORES,
        **dict.fromkeys(("loss", "lr", "keep_flops", "keep_params", "controller_loss"), _NUMBER),
        **dict.fromkeys(("epoch", "step", "num_skipped"), _COUNT),
        "phase": _optional(_text),
        "seconds": _optional(_finite),
        "alive": _optional(_named(_listed(_whole()), MOST_LAYERS)),
    }
)
_LAYER = _fields(
    {
        "name": _text,
        "total": _whole(1, MOST_CHANNELS),
        "width": _whole(1, MOST_CHANNELS),
        "alive": _whole(),
        "kept": _optional(_listed(_whole())),
        "kept_because": _optional(_text),
    },
    "name total width alive kept kept_because",
)
_SCHEDULE = _fields(
    {"steps_per_epoch": _whole(1), "total_steps": _whole(), "phases": _optional(_named(_COUNT))}, "steps_per_epoch total_steps"
)
_AGREEMENT = _fields({**dict.fromkeys(("num_same", "num_samples", "num_compared"), _COUNT), "unit": _text, "largest_difference": _NUMBER})
_REPORT = _fields(
    {
        "version": _whole(VERSION, VERSION),
        "config": _CONFIG,
        "environment": _fields({}),
        "history": _listed(_RECORD, MOST_LINES),
        "before": _optional(_MODEL),
        "after": _optional(_MODEL),
        "baseline": _optional(_MODEL),
        "agreement": _optional(_AGREEMENT),
        "layers": _optional(_listed(_LAYER, MOST_LAYERS)),
        "schedule": _optional(_SCHEDULE),
        "seconds": _optional(_finite),
        "num_skipped": _COUNT,
        "counter": _optional(_text),
        "missing": _optional(_named(_text, MOST_NAMES)),
    },
    "version config environment history",
)
