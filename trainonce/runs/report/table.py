"""A partition on a terminal, and for other programs.

Takes what `trainonce.inspect` found, gives rich tables for people and JSON for machines.
"""

from __future__ import annotations

import json

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainonce.messages.plain_text import in_one_line
from trainonce.structure.partition import Partition

_COLORS = {"yes": "green"}


def as_table(partition: Partition, *, title: str | None = None, everything: bool = False) -> RenderableType:
    """The groups of a model with what each is worth, then a summary; fits into 80 columns.

    The rows and lines are those of `print(partition)`.
    """
    found = partition.table(title=title, everything=everything)
    table = Table(title=as_title(found.title), title_justify="left", pad_edge=False, expand=False)
    for column in found.columns:
        if column.is_number:
            table.add_column(column.heading, justify="right", no_wrap=True)
        else:
            table.add_column(column.heading, overflow="fold", max_width=column.widest)
    for row in found.rows:
        cells = [Text(cell, style=_COLORS.get(cell, "")) for cell in row.cells]
        table.add_row(*cells, style="dim" if row.is_dim else None)
    return Group(table, *(Text(line) for line in found.lines))


def as_title(text: object) -> Text:
    """A title as it was written: in one line, and without rich's markup."""
    return Text(in_one_line(text, 200), style="table.title")


def as_json(partition: Partition) -> str:
    """Everything the table says, as one JSON object."""
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
                for group, share in zip(partition.groups, partition.shares(), strict=True)
            ],
            "notes": list(partition.notes),
        },
        indent=2,
    )
