"""A partition as a table.

Takes what `trainonce.inspect` found, gives rich tables for people and JSON for machines.
"""

from __future__ import annotations

import json
import re
from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.figures import in_units
from trainonce.runs.report.shares import Share, measure_shares
from trainonce.structure.channels import ChannelGroup, Role
from trainonce.structure.partition import Partition

_LONGEST_MODULE = 36
_MODULE_NAME = re.compile(r" in (?!place\b|the\b)[\w.]+(?= |,|$)")


def as_table(partition: Partition, *, title: str | None = None, everything: bool = False) -> RenderableType:
    """The groups of a model with what each is worth, then a summary; fits into 80 columns.

    Kept axes that nothing writes (a norm's own vectors, what the first layer reads) are only counted, unless
    `everything` is asked for.
    """
    shares = measure_shares(partition)
    table = Table(
        title=as_title(title or partition.model), title_justify="left", pad_edge=False, expand=False
    )
    table.add_column("group", overflow="fold", max_width=_LONGEST_MODULE)
    table.add_column("channels", justify="right", no_wrap=True)
    table.add_column("params", justify="right", no_wrap=True)
    table.add_column("FLOPs", justify="right", no_wrap=True)
    table.add_column("may be cut", overflow="fold")
    hidden = 0
    for group, share in zip(partition.groups, shares, strict=True):
        if everything or group.kept_because is None or any(part.role is Role.WRITER for part in group.slices):
            table.add_row(*_row(partition, group, share), style="dim" if group.kept_because else None)
        else:
            hidden += 1
    left_out = [f"{hidden} kept axes without a writer are not shown; --all shows them"] if hidden else []
    return Group(table, *(Text(line) for line in [*summarize(partition), *left_out]))


def as_title(text: object) -> Text:
    """A title as it was written: in one line, and without rich's markup."""
    return Text(in_one_line(text, 200), style="table.title")


def summarize(partition: Partition) -> list[str]:
    """A few lines: totals, what can go, how many groups stay for which reason, and what inspection could not see."""
    prunable, macs = partition.prunable_macs, partition.macs
    lines = [
        f"{in_units(macs)} multiply-adds, {in_units(partition.num_parameters)} parameters",
        f"{_percent(prunable, macs)} of the FLOPs can be cut ({len(partition.prunable_groups)} of "
        f"{len(partition.groups)} groups)",
    ]
    reasons = Counter(
        generalize_reason(group.kept_because) for group in partition.groups if group.kept_because
    )
    lines += [f"kept {count}x: {reason}" for reason, count in reasons.most_common()]
    return lines + [f"note: {note}" for note in partition.notes]


def generalize_reason(reason: str) -> str:
    """The reason with the modules' names left out, so that the same reason in ten blocks counts ten times."""
    return _MODULE_NAME.sub("", reason)


def as_json(partition: Partition) -> str:
    """Everything the table says, as one JSON object."""
    shares = measure_shares(partition)
    return json.dumps(
        {
            "model": partition.model,
            "macs": partition.macs,
            "prunable_macs": partition.prunable_macs,
            "parameters": partition.num_parameters,
            "groups": [
                {
                    "name": group.name,
                    "channels": group.num_channels,
                    "width": group.width,
                    "macs": share.macs,
                    "parameters": share.parameters,
                    "kept_because": group.kept_because,
                    "slices": [[part.tensor, part.axis, part.role.value] for part in group.slices],
                }
                for group, share in zip(partition.groups, shares, strict=True)
            ],
            "notes": list(partition.notes),
        },
        indent=2,
    )


def _row(partition: Partition, group: ChannelGroup, share: Share) -> tuple[Text, ...]:
    verdict = (
        Text("yes", style="green") if group.kept_because is None else Text(f"kept: {group.kept_because}")
    )
    return (
        Text(group.name or "(model)"),
        Text(str(group.num_channels) if group.width == 1 else f"{group.num_channels} x {group.width}"),
        Text(_percent(share.parameters, partition.num_parameters)),
        Text(_percent(share.macs, partition.macs)),
        verdict,
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"
