"""From a recording to groups of channels, each with its slices, its cost, and the reason if it is kept."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainonce.errors import ModelError
from trainonce.messages.plain_text import shorten
from trainonce.structure.channels import ChannelGroup, Contraction, Example, Factor, Role, Slice
from trainonce.structure.configuration import find_configuration
from trainonce.structure.norms import used_norms
from trainonce.structure.partition import Partition
from trainonce.structure.swaps import used_swaps
from trainonce.tracing.sizes.rules import SizeRules
from trainonce.tracing.state.labels import KERNEL, LabelBook, Layer, Slot
from trainonce.tracing.state.recording import Product, Recording


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """Groups with their channels numbered through, and the channel of every label."""

    groups: tuple[ChannelGroup, ...]
    channel_of_label: Tensor
    """-1 for labels that belong to no group."""

    def alive_labels(self, masks: Mapping[str, Tensor]) -> Tensor:
        """For every label whether the masks leave it; groups without a mask stay whole."""
        everything = [
            masks.get(group.name, torch.ones(group.num_channels, dtype=torch.bool)) for group in self.groups
        ]
        return torch.cat([*everything, torch.ones(1, dtype=torch.bool)])[self.channel_of_label]

    def prunable_channels(self) -> Tensor:
        """The channel of every label; -1 for those that may not be cut as well."""
        prunable = [torch.full((group.num_channels,), group.kept_because is None) for group in self.groups]
        is_prunable = torch.cat([*prunable, torch.zeros(1, dtype=torch.bool)])[self.channel_of_label]
        return torch.where(is_prunable, self.channel_of_label, -1)


def settle(recording: Recording) -> None:
    """Tie labels until every layer can lose a product set: along one axis only, the longest."""
    book = recording.book
    waiting = recording.spread
    while waiting:
        still = []
        for layer in waiting:
            current = Layer(book.compress(layer.ids.abs()))
            if len(current.varying) > 1 and bool((current.ids == 0).any()):
                book.keep(current.ids, "a reshape in the model mixes it with channels that can't be cut")
            elif len(current.varying) > 1:
                free = max(current.varying, key=lambda axis: current.ids.shape[axis])
                book.tie_along(
                    current,
                    [axis for axis in current.varying if axis != free],
                    "a reshape in the model mixes it with channels that can't be cut",
                )
                still.append(layer)
        waiting = still


def keep_protected(recording: Recording, patterns: Sequence[str]) -> None:
    """Keep what the user protects: every channel written by a module or tensor that matches a pattern."""
    for pattern in patterns:
        matched = [slot for slot in recording.slots if _matches(slot[0], pattern)]
        if not matched:
            raise ModelError(
                f"protect={shorten(pattern)} matches no module of this model. Use names from "
                "model.named_modules(), with * for any part."
            )
        for slot in matched:
            if slot in recording.writers:
                recording.book.keep(recording.slots[slot], f"you protected {pattern!r}")


def keep_before_branches(recording: Recording, idle: Sequence[str]) -> None:
    """Keep what an untaken path might read, where a module branched on data and left parameters idle."""
    for where, layers in recording.branches.items():
        if any(not where or name.startswith(f"{where}.") for name in idle):
            for layer in layers:
                recording.book.keep(
                    layer.ids, f"{where or 'the model'} chooses its path by data, and not all paths were seen"
                )


def _matches(tensor: str, pattern: str) -> bool:
    parts = tensor.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[:length]), pattern) for length in range(1, len(parts) + 1))


def number_channels(recording: Recording, order: Mapping[str, int]) -> Numbering:
    """Group the labels that lie on the same axes of the same tensors, and number their channels."""
    book = recording.book
    reason_ids = book.reason_ids()
    slots = sorted(recording.slots, key=lambda slot: (order[slot[0]], slot[1]))
    roots_on = {slot: book.roots(recording.slots[slot]) for slot in slots}
    signatures = _signatures(roots_on, book.num_labels) + reason_ids * 1_000_003
    members = [
        roots
        for roots in _by_signature(roots_on, signatures)
        if book.reason(int(reason_ids[roots[0]])) != KERNEL
    ]
    group_of_root, channel_of_root = (torch.full((book.num_labels,), -1, dtype=torch.long) for _ in range(2))
    for number, roots in enumerate(members):
        group_of_root[roots], channel_of_root[roots] = number, torch.arange(len(roots))
    slices: list[list[Slice]] = [[] for _ in members]
    for slot, roots in roots_on.items():
        owners = group_of_root[roots]
        numbers, counts = torch.unique(owners, return_counts=True)
        for number, positions in zip(
            numbers.tolist(), owners.argsort(stable=True).split(counts.tolist()), strict=True
        ):
            if number >= 0:
                slices[number].append(
                    Slice(
                        slot[0], slot[1], _role(recording, slot), positions, channel_of_root[roots[positions]]
                    )
                )
    names: dict[str, int] = {}
    steps = _steps(recording)
    groups = tuple(
        _group(
            slices[number],
            len(roots),
            book.reason(int(reason_ids[roots[0]])) or None,
            names,
            1 if steps is None else int(steps[roots].max()),
        )
        for number, roots in enumerate(members)
    )
    starts = torch.tensor([0, *(group.num_channels for group in groups)]).cumsum(0)
    everything = book.roots(torch.arange(book.num_labels))
    owners = group_of_root[everything]
    channels = torch.where(owners >= 0, starts[owners.clamp_min(0)] + channel_of_root[everything], -1)
    return Numbering(groups, channels)


def _signatures(roots_on: Mapping[Slot, Tensor], num_labels: int) -> Tensor:
    """A number per label that is equal for labels on the same slots, as often on each."""
    generator = torch.Generator().manual_seed(0)
    signatures = torch.zeros(num_labels, dtype=torch.long)
    for roots in roots_on.values():
        random = torch.randint(1, 2**62, (1,), generator=generator)
        signatures.index_add_(0, roots, random.expand(roots.numel()))
    return signatures


def _by_signature(roots_on: Mapping[Slot, Tensor], signatures: Tensor) -> list[Tensor]:
    seen: dict[int, list[Tensor]] = {}
    done = torch.zeros(signatures.numel(), dtype=torch.bool)
    for roots in roots_on.values():
        fresh = _unique_in_order(roots[~done[roots]])
        done[fresh] = True
        marks = signatures[fresh]
        for mark in _unique_in_order(marks).tolist():
            seen.setdefault(mark, []).append(fresh[marks == mark])
    return [torch.cat(parts) for parts in seen.values()]


def _unique_in_order(numbers: Tensor) -> Tensor:
    unique, inverse = torch.unique(numbers, return_inverse=True)
    first = torch.full((unique.numel(),), numbers.numel(), dtype=torch.long)
    first.scatter_reduce_(0, inverse, torch.arange(numbers.numel()), reduce="amin")
    return unique[first.argsort()]


def _steps(recording: Recording) -> Tensor | None:
    """For every label, the number that a multiple of its group must stay of; None if all may."""
    book = recording.book
    if not recording.multiples:
        return None
    steps = torch.ones(book.num_labels, dtype=torch.long)
    for layer, multiple in recording.multiples:
        roots, counts = torch.unique(book.roots(layer.ids.abs().flatten()), return_counts=True)
        needed = multiple // torch.gcd(counts, torch.tensor(multiple))
        steps[roots] = torch.lcm(steps[roots], needed)
    return steps


def _group(
    slices: list[Slice], num_channels: int, reason: str | None, names: dict[str, int], step: int
) -> ChannelGroup:
    writers = [part for part in slices if part.role is Role.WRITER]
    main = (writers or slices)[0]
    width = main.positions.numel() // num_channels
    if reason is None and not writers:
        reason = "no parameter writes it"
    if reason is None and num_channels == 1:
        reason = f"its {width} channels can only be cut together"
    if reason is None and (num_channels % step or num_channels == step):
        reason = f"the model runs only with multiples of {step} of them"
    return ChannelGroup(
        _unique_name(main, names), num_channels, width, tuple(slices), reason, step if reason is None else 1
    )


def _role(recording: Recording, slot: Slot) -> Role:
    if slot in recording.followers:
        return Role.FOLLOWER
    return Role.WRITER if slot in recording.writers else Role.READER


def _unique_name(main: Slice, names: dict[str, int]) -> str:
    base = main.tensor.rpartition(".")[0] or main.tensor
    if main.role is not Role.WRITER:
        base += " (input)"
    names[base] = names.get(base, 0) + 1
    return base if names[base] == 1 else f"{base}:{names[base]}"


def _contraction(book: LabelBook, product: Product, channel_of_label: Tensor) -> Contraction:
    vectors: dict[str, list[Tensor]] = {letter: [] for letter in product.sizes}
    for layer, letters in product.layers:
        current = Layer(book.compress(layer.ids.abs()))
        # A layer that still varies along two axes could not be settled: all of it is kept.
        if len(current.varying) == 1:
            vectors[letters[current.varying[0]]].append(channel_of_label[current.ids.flatten()])
    coefficient, factors = product.coefficient, []
    for letter, size in product.sizes.items():
        if vectors[letter]:
            factors.append(_factor(vectors[letter]))
        else:
            coefficient *= size
    return Contraction(product.where, coefficient, tuple(factors))


def _factor(vectors: list[Tensor]) -> Factor:
    if len(vectors) == 1:
        channels, counts = torch.unique(vectors[0], return_counts=True)
        return Factor(counts, channels[:, None])
    # One number per row: a one-dimensional unique is many times faster than one over rows.
    codes = torch.zeros_like(vectors[0])
    for vector in vectors:
        codes = torch.unique(codes * (int(vector.max()) + 2) + vector + 1, return_inverse=True)[1]
    counts = torch.bincount(codes)
    rows = torch.zeros(len(counts), len(vectors), dtype=torch.long)
    rows[codes] = torch.stack(vectors, dim=1)
    return Factor(counts, rows)


def _tensor_size(name: str, parameter: Tensor, recording: Recording, channel_of_label: Tensor) -> Contraction:
    sizes = {str(axis): size for axis, size in enumerate(parameter.shape)}
    layers = [
        (Layer(recording.slots[name, axis]), str(axis))
        for axis in range(parameter.dim())
        if (name, axis) in recording.slots
    ]
    return _contraction(recording.book, Product(name, 1, sizes, tuple(layers)), channel_of_label)


def parameter_order(model: nn.Module) -> dict[str, int]:
    """Where each parameter and buffer stands in the model."""
    return {
        name: place for place, (name, _) in enumerate((*model.named_parameters(), *model.named_buffers()))
    }


def _prunable_axes(groups: Sequence[ChannelGroup]) -> set[tuple[str, int]]:
    return {
        (part.tensor, part.axis) for group in groups if group.kept_because is None for part in group.slices
    }


def build_partition(model: nn.Module, recording: Recording, rules: SizeRules, example: Example) -> Partition:
    """Read the groups off a settled recording; nothing in the partition is the recording's."""
    numbering = number_channels(recording, parameter_order(model))
    label_channels = numbering.channel_of_label
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    return Partition(
        model=f"{type(model).__module__}.{type(model).__qualname__}",
        groups=numbering.groups,
        contractions=tuple(
            _contraction(recording.book, product, label_channels) for product in recording.products
        ),
        tensor_sizes=tuple(
            _tensor_size(name, parameter, recording, label_channels)
            for name, parameter in model.named_parameters()
        ),
        shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        notes=tuple(recording.notes),
        example=example,
        sizes=rules.in_channels(numbering.prunable_channels()),
        norms=used_norms(recording.norms.values(), _prunable_axes(numbering.groups)),
        swaps=used_swaps(recording.swaps.values(), _prunable_axes(numbering.groups)),
        configuration=find_configuration(model),
    )
