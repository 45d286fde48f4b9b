"""The network as a picture: takes what is left of every layer, gives bar codes and a heat map as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

BAR_WIDTH, BAR_HEIGHT = 600, 14
MOST_STRIPES = 4096
CELL_LIMIT = 120
"""Epochs that a heat map shows; longer runs are thinned out."""
MOST_CELLS = 60_000
"""In all: browsers fail on a page with half a million."""


def layer_rows(layers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Name, counts and bar code of each layer that may be cut; wider layers have longer bars."""
    shown = [layer for layer in layers if layer["kept_because"] is None]
    widest = max((layer["total"] * layer["width"] for layer in shown), default=1)
    return [
        {
            # A narrow page breaks names after their dots.
            "name": Markup(".<wbr>").join((layer["name"] or "(model)").split(".")),
            "alive": layer["alive"],
            "total": layer["total"],
            "width": layer["width"],
            "bar": bar_code(layer, widest),
        }
        for layer in shown
    ]


def bar_code(layer: Mapping[str, Any], widest: int) -> Markup:
    """One stripe per channel, in the model's order: filled if it was kept, empty if it was cut."""
    total = layer["total"]
    # The square root keeps narrow layers readable beside wide ones.
    length = BAR_WIDTH * max(0.08, (layer["total"] * layer["width"] / widest) ** 0.5)
    kept = set(range(total) if layer["kept"] is None else layer["kept"])
    if total > MOST_STRIPES:
        # Stripes would be too thin to see: one channel stands for its neighbors.
        kept = {stripe for stripe in range(MOST_STRIPES) if stripe * total // MOST_STRIPES in kept}
        total = MOST_STRIPES
    parts = [
        Markup(
            '<svg class="code" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
            'aria-label="{} of {} channels">'
        ).format(BAR_WIDTH, BAR_HEIGHT, layer["alive"], layer["total"]),
        Markup('<rect class="gone" width="{:.1f}" height="{}"/>').format(length, BAR_HEIGHT),
    ]
    gap = 0.6 if length / total > 3 else 0.0
    for start, count in _runs(kept, total, merge=not gap):
        parts.append(
            Markup('<rect class="stays" x="{:.2f}" width="{:.2f}" height="{}"/>').format(
                length * start / total, max(0.3, length * count / total - gap), BAR_HEIGHT
            )
        )
    return Markup("").join([*parts, Markup("</svg>")])


def heat_map(history: Sequence[Mapping[str, Any]]) -> Markup:
    """Rows are layers, columns epochs; the stronger the color, the more of the layer the masks keep."""
    records = [record for record in history if record.get("alive")]
    if not records:
        return Markup("")
    names = list(records[0]["alive"])
    columns = max(1, min(CELL_LIMIT, MOST_CELLS // len(names)))
    records = records[:: -(-len(records) // columns)]
    row_height = 12
    cell_width = BAR_WIDTH / len(records)
    parts = [
        Markup(
            '<svg class="heat" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
            'aria-label="masks over epochs">'
        ).format(BAR_WIDTH, row_height * len(names))
    ]
    for row, name in enumerate(names):
        for column, record in enumerate(records):
            alive, total = record["alive"].get(name, (0, 1))
            parts.append(
                Markup(
                    '<rect x="{:.2f}" y="{}" width="{:.2f}" height="{}" fill-opacity="{:.2f}">'
                    "<title>{}</title></rect>"
                ).format(
                    column * cell_width,
                    row * row_height,
                    cell_width + 0.2,
                    row_height - 1,
                    alive / total,
                    f"{name}: {alive} of {total} in epoch {record.get('epoch', '?')}",
                )
            )
    return Markup("").join([*parts, Markup("</svg>")])


def _runs(kept: set[int], total: int, *, merge: bool) -> list[tuple[int, int]]:
    """Start and length of each stretch of kept channels; one channel each unless `merge`."""
    if not merge:
        return [(channel, 1) for channel in sorted(kept)]
    runs: list[tuple[int, int]] = []
    for channel in range(total):
        if channel in kept:
            if runs and sum(runs[-1]) == channel:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((channel, 1))
    return runs
