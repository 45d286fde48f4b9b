"""The model card: takes the facts of a run, gives Markdown that lies beside the small model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainonce.plain_text import in_one_line
from trainonce.report.figures import figures_of
from trainonce.report.run_table import verdict

_MARKUP = re.compile(r"[\\`*\[\]|]")


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
        f"FLOPs are counted by {_plain(report.get('counter') or 'torch')}. "
        f"Milliseconds were measured on {_plain(environment.get('cpu', '?'))}, "
        f"{_count(_plain(environment.get('threads', '?')), 'thread')}, torch {_plain(environment.get('torch', '?'))}.",
        *(f"- {_plain(line)}" for line in verdict(report)),
        "",
        "## Widths",
        "| layer | channels | of |",
        "|---|---|---|",
        *(
            f"| {_plain(layer['name'])} | {layer['alive']} | {layer['total']} |"
            for layer in report.get("layers") or []
            if not layer["kept_because"]
        ),
        "",
        "## How it was made",
        f"`{'trainonce train --config config.yaml' if 'data' in config else 'trainonce.fit'}` "
        f"with the settings in config.yaml beside this folder; seed {_plain(config.get('seed', '?'))}.",
        "",
        "## Limits",
        f"It classifies what {_plain(data)} holds. Its accuracy is that of one run and one seed; seeds differ by some tenths of a point.",
        "",
    ]
    return "\n".join(lines)


def _count(number: str, what: str) -> str:
    return f"{number} {what}" if number == "1" else f"{number} {what}s"


def _plain(text: object) -> str:
    """Text that Markdown shows as it is: no table, link, picture or HTML comes out of it."""
    return _MARKUP.sub(r"\\\g<0>", in_one_line(text, 300)).replace("<", "&lt;")
