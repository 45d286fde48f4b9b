"""The model card: takes the facts of a run, gives the README.md of the small model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.figures import figures_of
from trainonce.runs.report.uncertainty import counted
from trainonce.runs.report.usage import about_in, lines_to_run
from trainonce.runs.report.verdict import remarks_on, verdict_of

_MARKUP = re.compile(r"[\\`*\[\]|]")


def render_card(report: Mapping[str, Any]) -> str:
    """What the model is, how small and how accurate, how it was made, and what its limits are."""
    config, environment = report["config"], report["environment"]
    name, data = config.get("model", "a model"), config.get("data")
    lines = [
        f"# {_plain(name)}, pruned{'' if data is None else f' on {_plain(data)}'}",
        "",
        _plain(verdict_of(report), 900),
        "",
        *_how_to_use(report, name),
        "",
        "| | before | after | change |",
        "|---|---|---|---|",
        *(
            f"| {_plain(figure.label)} | {figure.before or '-'} | {figure.after} | {figure.change or '-'} |"
            for figure in figures_of(report)
        ),
        "",
        f"FLOPs are counted by {_plain(report.get('counter') or 'torch')}. "
        f"Milliseconds were measured on {_plain(environment.get('cpu', '?'))}, "
        f"{_threads(environment)}, torch "
        f"{_plain(environment.get('torch', '?'))}.",
        "",
        *(f"- {_plain(line)}" for line in remarks_on(report)),
        "",
        "## Widths",
        "| layer | channels | of |",
        "|---|---|---|",
        *(
            f"| {_plain(layer['name'])} | {layer['alive']} | {layer['total']} |"
            for layer in report.get("layers") or []
            if not layer["kept_because"]
        ),
        *_classes(report),
        "",
        "## How it was made",
        f"`{'trainonce train --config config.yaml' if 'data' in config else 'trainonce.fit'}` "
        f"with the settings in config.yaml beside this folder; seed {_plain(config.get('seed', '?'))}.",
        *([f"Started from {_plain(report['start'], 900)}."] if report.get("start") else []),
        *([f"Distilled from {_plain(report['teacher'])}."] if report.get("teacher") else []),
        "",
        "## Limits",
        f"It was trained and validated on {'one data set' if data is None else _plain(data)} only. "
        "Its scores are from one run with one seed; other seeds give other scores.",
        "",
    ]
    return "\n".join(lines)


def _how_to_use(report: Mapping[str, Any], name: object) -> list[str]:
    lines = lines_to_run(report)
    if not lines:
        return [
            "Made by trainonce in one training run. Load it into the dense model it was made from: "
            f"`trainonce.load(FOLDER, into=model)`, where `model` is {_plain(name)}."
        ]
    return ["Made by trainonce in one training run. In this folder:", "", "```python", *lines, "```"]


def _classes(report: Mapping[str, Any]) -> list[str]:
    classes = about_in(report).classes
    if not classes:
        return []
    shown = ", ".join(_plain(name, 80) for name in classes[:100])
    more = f" and {len(classes) - 100} more" if len(classes) > 100 else ""
    return ["", "## Classes", f"{shown}{more}."]


def _threads(environment: Mapping[str, Any]) -> str:
    number = environment.get("threads", "?")
    return counted(number, "thread") if type(number) is int else f"{_plain(number)} threads"


def _plain(text: object, longest: int = 300) -> str:
    """Text that Markdown shows as it is, without making tables, links, pictures or HTML of it."""
    return _MARKUP.sub(r"\\\g<0>", in_one_line(text, longest)).replace("<", "&lt;")
