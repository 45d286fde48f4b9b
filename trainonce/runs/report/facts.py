"""The facts of a run from its folder: takes files that may be damaged, gives what page and table can show.

What is there must be of the right kind; what is missing is left out of the report. Sizes that would make the
page endless are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainonce.errors import ReportError
from trainonce.messages.plain_text import in_one_line
from trainonce.runs.file_names import CONFIG, ENVIRONMENT, METRICS, REPORT
from trainonce.runs.plain_files import (
    MOST_LINES,
    UnreadableFileError,
    read_json_lines,
    read_json_values,
    read_yaml_values,
)
from trainonce.runs.report.kinds import (
    MOST_NAMES,
    WrongKindError,
    anything,
    fields,
    finite,
    listed,
    named,
    number,
    optional,
    text,
    whole,
)
from trainonce.zoo.names import how_to_resume

VERSION = 1
MOST_LAYERS = 5_000
MOST_CHANNELS = 2**20
"""In one layer."""
MOST_CHANNELS_IN_ALL = 2**24

MOST_METRICS = 100
SCORES = ("top1", "top5", "validation_loss")

_NUMBER, _COUNT = optional(number), optional(whole())
_CONFIG = fields({"keep_flops": optional(finite), "keep_params": optional(finite)})
_LATENCY = optional(fields(dict.fromkeys(("median", "low", "high"), finite), "median low high"))
_SCORES = {**dict.fromkeys(SCORES, _NUMBER), "metrics": optional(named(_NUMBER, MOST_METRICS))}
_COUNTS = dict.fromkeys(("macs", "parameters", "bytes", "num_samples"), _COUNT)
_RECORD = fields(
    {
        **_SCORES,
        **dict.fromkeys(("loss", "lr", "keep_flops", "keep_params", "controller_loss"), _NUMBER),
        **dict.fromkeys(("epoch", "step", "num_skipped"), _COUNT),
        "phase": optional(text),
        "seconds": optional(finite),
        "alive": optional(named(listed(whole()), MOST_LAYERS)),
    }
)
_MODEL = fields({**_SCORES, **_COUNTS, "latency_ms": _LATENCY, "history": optional(listed(_RECORD))})
_LAYER = fields(
    {
        "name": text,
        "total": whole(1, MOST_CHANNELS),
        "width": whole(1, MOST_CHANNELS),
        "alive": whole(),
        "kept": optional(listed(whole())),
        "kept_because": optional(text),
    },
    "name total width alive kept kept_because",
)
_COST = fields({"macs": whole(), "ms": optional(finite)}, "macs")
_LAYER_COST = fields(
    {"name": text, "kind": text, "count": whole(1), "before": _COST, "after": _COST},
    "name kind count before after",
)
_SCHEDULE = fields(
    {
        "steps_per_epoch": whole(1),
        "total_steps": whole(),
        "phases": optional(named(_COUNT)),
        "cuts": optional(listed(whole(), 100)),
    },
    "steps_per_epoch total_steps",
)
_AGREEMENT = fields(
    {
        **dict.fromkeys(("num_same", "num_samples", "num_compared"), _COUNT),
        "unit": text,
        "largest_difference": _NUMBER,
    }
)
_ABOUT = fields(
    {
        "name": optional(text),
        "classes": optional(listed(text, 1000)),
        "preprocessing": optional(
            fields(
                {
                    "mean": listed(finite, 100),
                    "std": listed(finite, 100),
                    "size": whole(1, 2**16),
                    "shorter_side": optional(whole(1, 2**16)),
                    "interpolation": text,
                },
                "mean std size",
            )
        ),
    }
)
_STANDING = fields(
    {
        "name": text,
        "top1": _NUMBER,
        "bytes": whole(),
        "milliseconds": named(
            fields(dict.fromkeys(("median", "low", "high"), finite), "median low high"), 10
        ),
    },
    "name bytes milliseconds",
)
_INT8 = fields(
    {
        **dict.fromkeys(("path", "ranges"), text),
        **dict.fromkeys(("num_validation", "num_calibration", "num_layers"), whole()),
        "threads": whole(1),
        "standings": listed(_STANDING, 3),
        "left_in_float": optional(named(text, MOST_LAYERS)),
    },
    "ranges num_validation num_calibration num_layers threads standings",
)
_REPORT = fields(
    {
        "version": whole(VERSION, VERSION),
        "config": _CONFIG,
        "changed": optional(named(anything, MOST_NAMES)),
        "data": optional(fields({"num_classes": _COUNT, "image_size": _COUNT})),
        "about": optional(_ABOUT),
        "environment": fields({}),
        "history": listed(_RECORD, MOST_LINES),
        "before": optional(_MODEL),
        "after": optional(_MODEL),
        "baseline": optional(_MODEL),
        "agreement": optional(_AGREEMENT),
        "layers": optional(listed(_LAYER, MOST_LAYERS)),
        "costs": optional(listed(_LAYER_COST, MOST_LAYERS)),
        "int8": optional(_INT8),
        "schedule": optional(_SCHEDULE),
        "seconds": optional(finite),
        "num_skipped": _COUNT,
        "counter": optional(text),
        "start": optional(text),
        "teacher": optional(text),
        "missing": optional(named(text, MOST_NAMES)),
    },
    "version config environment history",
)


def read_facts(folder: Path) -> dict[str, Any]:
    """The facts of a finished run, or what there is of one that still trains."""
    try:
        if (folder / REPORT).is_file():
            facts = read_json_values(folder / REPORT)
        elif (folder / CONFIG).is_file():
            facts = _facts_so_far(folder)
        else:
            raise ReportError(
                f"there is no run in {folder}. Pass the folder that trainonce train wrote, which holds "
                f"{CONFIG}."
            )
        check_facts(facts)
    except (UnreadableFileError, WrongKindError) as error:
        raise ReportError(
            f"the files in {folder} are damaged: {error} Copy the folder again, or train again."
        ) from None
    return facts


def check_facts(facts: Any) -> None:
    """Raise ValueError unless page, card and table can show this."""
    _REPORT(facts, "the report")
    if sum(layer["total"] for layer in facts.get("layers") or ()) > MOST_CHANNELS_IN_ALL:
        raise WrongKindError(f"its layers have more than {MOST_CHANNELS_IN_ALL} channels.")
    for layer in facts.get("layers") or ():
        total, alive, kept = layer["total"], layer["alive"], layer["kept"]
        if not 0 <= alive <= total or (
            kept is not None and not all(0 <= channel < total for channel in kept)
        ):
            raise _impossible(layer["name"])
    for record in facts["history"]:
        for name, counts in (record.get("alive") or {}).items():
            if len(counts) != 2 or not 0 <= counts[0] <= counts[1] or counts[1] < 1:
                raise _impossible(name)


def baseline_of(dense: Mapping[str, Any]) -> dict[str, Any]:
    """What another run's report keeps of a dense run: its scores, and its curve."""
    curve = [
        {name: record.get(name) for name in ("epoch", "top1", "validation_loss", "metrics")}
        for record in dense["history"]
    ]
    return {**(dense.get("after") or {}), "history": curve}


def _impossible(layer: str) -> WrongKindError:
    return WrongKindError(f"the layer {in_one_line(layer, 60)!r} keeps channels that it doesn't have.")


def _facts_so_far(folder: Path) -> dict[str, Any]:
    config = read_yaml_values(folder / CONFIG)
    history = read_json_lines(folder / METRICS) if (folder / METRICS).is_file() else []
    if not history:
        how = how_to_resume(folder, config if isinstance(config, dict) else {})
        raise ReportError(
            f"the run in {folder} has not finished its first epoch. Wait, or resume with {how}."
        )
    listed(_RECORD)(history, METRICS)
    last = history[-1]
    return {
        "version": VERSION,
        "history": history,
        "config": config,
        "environment": read_json_values(folder / ENVIRONMENT) if (folder / ENVIRONMENT).is_file() else {},
        "before": None,
        "after": {name: last.get(name) for name in (*SCORES, "metrics")},
        "agreement": None,
        "layers": [],
        "schedule": None,
        "seconds": last.get("seconds"),
    }
