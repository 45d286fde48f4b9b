"""The laws of trainonce on one model: takes a source, gives what was measured, step by step."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

import trainonce
from benchmarks.coverage.calls import (
    SEED,
    in_precision,
    largest_difference,
    reason_of,
    run_quietly,
    share_not_finite,
    warm_up,
)
from benchmarks.coverage.counting import count_macs
from benchmarks.coverage.others.catalogue import is_other
from benchmarks.coverage.reasons import costliest_reasons
from benchmarks.coverage.subject import load_subject
from benchmarks.coverage.training import take_training_step
from benchmarks.harness.flops import count_parameters
from trainonce import Partition, Plan
from trainonce.execution.precision import InDouble
from trainonce.structure.channels import Example
from trainonce.structure.partition import generalize_reason

__all__ = ["measure_laws", "warm_up"]

KEEP = 0.5
_MOST_REASONS = 6
_LARGEST_DOUBLE = 400_000_000


def measure_laws(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """After each step its name and what it found; a step that raises ends it."""
    subject = load_subject(source)
    yield "load", {}
    model = subject.model
    started = time.perf_counter()
    partition = trainonce.inspect(model, subject.example)
    yield "inspect", {"inspect_seconds": time.perf_counter() - started, **_describe(partition)}

    full_macs, counted_on = count_macs(model, subject.example)
    yield (
        "count",
        {"macs": full_macs, "counted_on": counted_on, "cost_of_full_exact": partition.macs == full_macs},
    )

    plan = Plan.random(partition, keep=KEEP, seed=SEED)
    predicted = round(float(trainonce.cost.macs(partition, trainonce.cost.masks_of(partition, plan))))
    yield "plan", {"removed_share": 1 - predicted / full_macs if full_macs else 0.0}

    yield "compare", _compare_silenced_with_cut(source, plan)
    started = time.perf_counter()
    trainonce.cut(model, plan)
    yield "cut", {"cut_seconds": time.perf_counter() - started}

    cut_macs, _ = count_macs(model, subject.example)
    parameters = count_parameters(model)
    yield (
        "count again",
        {
            "removed_parameters": 1 - parameters / partition.num_parameters,
            "cost_of_cut_exact": predicted == cut_macs,
        },
    )
    if predicted != cut_macs:
        yield (
            "count objects",
            {"cost_of_other_objects": True, "cost_of_cut_exact": _macs_of_silenced(source, plan) == cut_macs},
        )
    yield "save and load", _save_and_load(source, model, subject.example)
    batch = subject.example if is_other(source) else None
    yield "train", {"train_problem": take_training_step(model, subject.example, batch)}


def _describe(partition: Partition) -> dict[str, Any]:
    reasons = Counter(
        generalize_reason(group.kept_because) for group in partition.groups if group.kept_because
    )
    return {
        "parameters": partition.num_parameters,
        "prunable_share": partition.prunable_macs / partition.macs if partition.macs else 0.0,
        "num_groups": len(partition.groups),
        "num_channel_groups": sum(group.width == 1 for group in partition.prunable_groups),
        "num_head_groups": sum(group.width > 1 for group in partition.prunable_groups),
        "kept": dict(reasons.most_common(_MOST_REASONS)),
        "costliest": costliest_reasons(partition),
        "notes": list(partition.notes),
    }


def _macs_of_silenced(source: str, plan: Plan) -> int | None:
    """What the silenced model's own inspection predicts for the plan; None if it sees other groups.

    The silenced model computes what the cut one does, so it finds as many objects; the whole model may find
    others.
    """
    subject = load_subject(source)
    trainonce.silence(subject.model, plan)
    partition = trainonce.inspect(subject.model, subject.example)
    masks = trainonce.cost.masks_of(partition, plan)
    if Plan.from_masks(partition, masks).cuts != plan.cuts:
        return None
    return round(float(trainonce.cost.macs(partition, masks)))


def _compare_silenced_with_cut(source: str, plan: Plan) -> dict[str, Any]:
    """The difference between the two on a model of its own, in float64 if it runs so.

    What it does in float32 on purpose is then done in float64 as well. The cut's own proof is left to the
    next step.
    """
    subject = load_subject(source)
    num_parameters = count_parameters(subject.model)
    precisions = (torch.float64, torch.float32) if num_parameters <= _LARGEST_DOUBLE else (torch.float32,)
    for precision in precisions:
        model, example = subject.model.to(precision), in_precision(subject.example, precision)
        trainonce.silence(model, plan)
        arithmetic = InDouble() if precision is torch.float64 else nullcontext()
        try:
            with arithmetic:
                before = run_quietly(model, example)
        except (RuntimeError, TypeError):
            if precision is precisions[-1]:
                raise
        else:
            break
    trainonce.cut(model, plan.without_example())
    with arithmetic:
        after = run_quietly(model, example)
    return {
        "precision": str(precision).removeprefix("torch."),
        "difference": largest_difference(before, after),
        "num_compared": sum(tensor.numel() for tensor in before),
        "not_finite": share_not_finite(before),
    }


def _save_and_load(source: str, model: nn.Module, example: Example) -> dict[str, Any]:
    try:
        return _compare_with_loaded(source, model, example)
    except Exception as error:
        # The training step says something even if this fails.
        return {"disk_problem": reason_of(error)}


def _compare_with_loaded(source: str, model: nn.Module, example: Example) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        trainonce.save(model, Path(folder) / "small")
        again = trainonce.load(Path(folder) / "small", into=load_subject(source).model)
    saved, loaded = model.state_dict(), again.state_dict()
    same_state = saved.keys() == loaded.keys() and all(
        torch.equal(saved[name], loaded[name]) for name in saved
    )
    difference = largest_difference(run_quietly(model, example), run_quietly(again, example))
    return {"state_survives": same_state, "difference_after_loading": difference}
