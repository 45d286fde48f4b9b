"""Finds the last writers of each unit, which are the ones to gate: measured, then proven on the example."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainonce.execution.comparison import relative_difference
from trainonce.execution.forward import copied, output_tensors, run_model
from trainonce.execution.restoring import modes_kept
from trainonce.pruning.gating.gates import Gates
from trainonce.pruning.units import Rows, Units
from trainonce.structure.channels import Example
from trainonce.surgery.proof import TOLERANCE, failing, outputs_of
from trainonce.surgery.scratch import scratch_weights

FAINT = 1e-4
"""All writers of every second unit are scaled by this; what has another writer behind it fades twice."""


def find_gates(
    model: nn.Module, units: Units, tensors: Mapping[str, nn.Parameter], example: Example
) -> Gates:
    """Gates on the last writers, where they silence a unit as completely as all writers do; else on all.

    Closing the gate of a norm keeps its input alive, so the loss has a gradient for opening it again. With
    the layers before it closed as well, that gradient would be zero and a masked unit could never come back.
    """
    everything = Gates.on(units, tensors)
    if any(parameter.is_meta for parameter in model.parameters()):
        return everything
    with modes_kept(model), scratch_weights(model, None):
        model.eval()
        try:
            last_WG = _last(units, _influence_left(model, units, tensors, example))
        except (RuntimeError, ValueError, TypeError):
            # The model can't be differentiated on this example; gates on all writers are always right.
            return everything
        numbers = {group.name: number for number, group in enumerate(units.groups)}

        def complaint(names: list[str]) -> str | None:
            chosen = torch.zeros(len(units.groups), dtype=torch.bool)
            chosen[[numbers[name] for name in names]] = True
            gates = gates_at(last_WG | ~chosen, units, tensors)
            return (
                None
                if _silences(model, gates, everything, len(units), example)
                else "its last writers alone don't silence it"
            )

        for name in failing(list(numbers), complaint):
            last_WG[:, numbers[name]] = True
    return gates_at(last_WG, units, tensors)


def gates_at(places_WG: Tensor, units: Units, tensors: Mapping[str, nn.Parameter]) -> Gates:
    """Gates on these writers: for each writer and group, whether its rows are gated."""
    return Gates.on(units, tensors, _rows(units, places_WG))


def places_of(gates: Gates, units: Units) -> Tensor:
    """For each writer and group, whether its rows are gated; what `gates_at` makes the same gates of."""
    places_WG = torch.zeros(len(units.writers), len(units.groups), dtype=torch.bool)
    for number, rows in enumerate(units.writers):
        for gated in gates.rows:
            if (gated.tensor, gated.axis) == (rows.tensor, rows.axis):
                places_WG[number, units.group_of[gated.units].unique()] = True
    return places_WG


def _influence_left(
    model: nn.Module, units: Units, tensors: Mapping[str, nn.Parameter], example: Example
) -> Tensor:
    """For each writer and group, how much rows of faint units still move the outputs, relative to others."""
    faint = _every_second(units)
    with torch.enable_grad(), Gates.on(units, tensors).closed(torch.where(faint, FAINT, 1.0)) as whole:
        outputs = [
            output for output in output_tensors(run_model(model, copied(example))) if output.requires_grad
        ]
        generator = torch.Generator().manual_seed(0)
        loss = torch.stack(
            [(output * torch.randn(output.shape, generator=generator).to(output)).sum() for output in outputs]
        ).sum()
        names = sorted(whole)
        gradients = dict(
            zip(
                names,
                torch.autograd.grad(loss, [tensors[name] for name in names], allow_unused=True),
                strict=True,
            )
        )
    modules: dict[str, Tensor] = {}
    for rows in units.writers:
        gradient = gradients[rows.tensor]
        felt = modules.setdefault(_module(rows), torch.zeros(len(units)))
        if gradient is not None:
            rows.add_to_units(felt, rows.sums(whole[rows.tensor] * gradient))

    def mean(felt: Tensor, where: Tensor) -> Tensor:
        return units.per_group(felt.abs() * where) / units.per_group(where.float()).clamp_min(1)

    # Weight and bias of a module are gated together. What the example doesn't reach gives 0 / 0.
    left = {name: mean(felt, faint) / mean(felt, ~faint) for name, felt in modules.items()}
    return torch.stack([left[_module(rows)] for rows in units.writers])


def _last(units: Units, left_WG: Tensor) -> Tensor:
    """For each writer and group, whether it is a last writer: its influence did not fade with the others.

    If all of them fade, the group is a product (a gated linear unit), and the strongest factor is enough.
    """
    writes_WG = torch.stack(
        [
            units.per_group(torch.zeros(len(units)).index_fill(0, rows.units, 1.0)) > 0
            for rows in units.writers
        ]
    )
    last_WG = writes_WG & (left_WG > FAINT**0.5)
    strongest_WG = left_WG == left_WG.nan_to_num(-1.0).amax(dim=0)
    # Nothing to compare with, or not reached (an expert without a sample): gate these in any case.
    unsure_WG = writes_WG & ((units.per_group(torch.ones(len(units))) < 2) | ~left_WG.isfinite())
    return torch.where(last_WG.any(dim=0), last_WG, strongest_WG & writes_WG) | unsure_WG


def _rows(units: Units, chosen_WG: Tensor) -> tuple[Rows, ...]:
    chosen = []
    for rows, chosen_G in zip(units.writers, chosen_WG, strict=True):
        here = chosen_G[units.group_of[rows.units]]
        if bool(here.any()):
            chosen.append(rows.where(here))
    return tuple(chosen)


def _silences(model: nn.Module, gates: Gates, everything: Gates, num_units: int, example: Example) -> bool:
    """Whether gating half of all units gives the same outputs as zeroing all of their writers."""
    masks = (torch.rand(num_units, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    with gates.closed(masks):
        gated = outputs_of(model, example)
    with everything.closed(masks):
        silent = outputs_of(model, example)
    dtype = next((output.dtype for output in silent if output.is_floating_point()), torch.float32)
    return relative_difference(silent, gated) <= TOLERANCE.get(dtype, 5e-2)


def _every_second(units: Units) -> Tensor:
    return torch.cat(
        [
            torch.zeros(0, dtype=torch.bool),
            *(torch.arange(group.num_channels) % 2 == 1 for group in units.groups),
        ]
    )


def _module(rows: Rows) -> str:
    return rows.tensor.rpartition(".")[0]
