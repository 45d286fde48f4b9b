"""The model card: takes the facts of a run, gives Markdown that lies beside the small model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainonce.report.figures import figures_of
from trainonce.report.run_table import verdict


def render_card(report: Mapping[str, Any]) -> str:
    """A card for people: what the model is, how small and how good, how it was made, and what it is not good for."""
    config, environment = report["config"], report["environment"]
    name, data = config.get("model", "a model"), config.get("data", "data")
    lines = [
        f"# {_plain(name)}, pruned on {_plain(data)}",
        "",
        f"Made by trainonce in one training run. Load it onto the model it was made from: "
        f"`trainonce.load(FOLDER, into=model)`, where `model` is {_plain(name)}.",
        "",
        "| | before | after | change |",
        "|---|---|---|---|",
        *(f"| {figure.label} | {figure.before or '-'} | {figure.after} | {figure.change or '-'} |" for figure in figures_of(report)),
        "",
        f"FLOPs are counted by {report.get('counter', 'torch')}. Milliseconds were measured on {_plain(environment.get('cpu', '?'))}, "
        f"{_count(environment.get('threads', '?'), 'thread')}, torch {environment.get('torch', '?')}.",
        *(f"- {line}" for line in verdict(report)),
        "",
        "## Widths",
        "| layer | channels | of |",
        "|---|---|---|",
        *(f"| {_plain(layer['name'])} | {layer['alive']} | {layer['total']} |" for layer in report["layers"] if not layer["kept_because"]),
        "",
        "## How it was made",
        f"`trainonce train --config config.yaml` with the file beside this folder; seed {config.get('seed', '?')}.",
        "",
        "## Limits",
        f"It classifies what {_plain(data)} holds. Its accuracy is that of one run and one seed; seeds differ by some tenths of a point.",
        "",
    ]
    return "\n".join(lines)


def _count(number: object, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _plain(text: object) -> str:
    """Text that Markdown takes as it is."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")
