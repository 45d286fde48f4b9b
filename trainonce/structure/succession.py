"""Plans composed: what is left of one plan after another, and both as one plan for the dense model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainonce.structure.norms import used_norms
from trainonce.structure.plan import AttributeChange, Plan
from trainonce.structure.swaps import used_swaps


def plan_after(first: Plan, second: Plan) -> Plan:
    """What remains of `second` once `first` has been applied.

    Both count from the same model, and `first` drops nothing that `second` keeps.
    """
    stood = {(cut.tensor, cut.axis): cut.kept for cut in first.cuts}
    shapes = {name: list(shape) for name, shape in first.shapes.items()}
    for (tensor, axis), kept in stood.items():
        shapes[tensor][axis] = len(kept)
    cuts = []
    for cut in second.cuts:
        before = stood.get((cut.tensor, cut.axis), range(second.shapes[cut.tensor][cut.axis]))
        kept = _places(cut.kept, before)
        if len(kept) < len(before):
            cuts.append(replace(cut, kept=kept))
    return replace(
        second,
        kept={
            name: _places(kept, first.kept[name]) if name in first.kept else kept
            for name, kept in second.kept.items()
        },
        shapes={name: tuple(shape) for name, shape in shapes.items()},
        cuts=tuple(cuts),
        attributes=_changes_between(first.attributes, second.attributes),
        norms=used_norms(second.norms, ((cut.tensor, cut.axis) for cut in cuts)),
        swaps=used_swaps(second.swaps, ((cut.tensor, cut.axis) for cut in cuts)),
    )


def joined(first: Plan, second: Plan) -> Plan:
    """Both as one plan for the model that `first` was made for.

    `second` was made for the model that `first` leaves.
    """
    kept, cuts = dict(first.kept), {(cut.tensor, cut.axis): cut for cut in first.cuts}
    for name, places in second.kept.items():
        kept[name] = _numbers(places, kept[name]) if name in kept else places
    for cut in second.cuts:
        before = cuts.get((cut.tensor, cut.axis))
        cuts[cut.tensor, cut.axis] = (
            cut if before is None else replace(cut, kept=_numbers(cut.kept, before.kept))
        )
    stood = {change.path: change for change in first.settings}
    return replace(
        first,
        kept=kept,
        cuts=tuple(cuts.values()),
        attributes=_changes_in_all(first.attributes, second.attributes),
        norms=tuple({norm.module: norm for norm in (*first.norms, *second.norms)}.values()),
        swaps=tuple({swap.module: swap for swap in (*first.swaps, *second.swaps)}.values()),
        settings=tuple(
            {
                change.path: replace(change, before=stood[change.path].before)
                if change.path in stood
                else change
                for change in (*first.settings, *second.settings)
            }.values()
        ),
    )


def _numbers(places: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    """The numbers that stand at these places of `before`."""
    return tuple(before[place] for place in places)


def _places(kept: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    """Where the numbers in `kept` stand in `before`."""
    place = {number: index for index, number in enumerate(before)}
    return tuple(place[number] for number in kept)


def _changes_between(
    first: Sequence[AttributeChange], second: Sequence[AttributeChange]
) -> tuple[AttributeChange, ...]:
    """From what `first` has made of the sizes that modules remember to what `second` wants.

    Both count from the same model.
    """
    stood = {(change.module, change.name, change.index): change for change in first}
    wanted = {(change.module, change.name, change.index): change for change in second}
    changes = [
        replace(change, before=stood[key].after if key in stood else change.before)
        for key, change in wanted.items()
    ]
    changes += [
        replace(change, before=change.after, after=change.before)
        for key, change in stood.items()
        if key not in wanted
    ]
    return tuple(change for change in changes if change.before != change.after)


def _changes_in_all(
    first: Sequence[AttributeChange], second: Sequence[AttributeChange]
) -> tuple[AttributeChange, ...]:
    """What `second` makes of what `first` has made; `second` counts from there."""
    changes = {(change.module, change.name, change.index): change for change in first}
    for change in second:
        key = (change.module, change.name, change.index)
        changes[key] = replace(change, before=changes[key].before) if key in changes else change
    return tuple(change for change in changes.values() if change.before != change.after)
