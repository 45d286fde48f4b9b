"""The report of a finished run, made once its small model is on disk.

A part that fails is left out with a warning: a run of several days must not end in an error because a
model can't be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from trainonce.data.samples import Samples
from trainonce.engines.counting import COUNTER
from trainonce.messages.plain_text import kind_and_reason
from trainonce.runs.report.writing import write_report
from trainonce.training.loop.moments import schedule_of
from trainonce.training.loop.trainer import Trainer
from trainonce.training.results.outcome import (
    changed_settings,
    compare_both,
    describe_about,
    describe_classes,
    describe_layers,
    describe_model,
    measure_both,
    measure_layers,
    one_sample,
)
from trainonce.training.session import Session

Part = TypeVar("Part")
LONGEST_REASON = 200


class Parts:
    """The parts of a report; those that fail are listed in `missing`."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.missing: dict[str, str] = {}
        self._tell = tell

    def make(self, name: str, part: Callable[[], Part], otherwise: Part) -> Part:
        """The part, or `otherwise` if it raises: a user's model may raise anything."""
        try:
            return part()
        except Exception as error:
            self.missing[name] = kind_and_reason(error, LONGEST_REASON)
            self._tell(f"the report has no {name} ({self.missing[name]})")
            return otherwise


def make_report(
    session: Session,
    trainer: Trainer,
    small: nn.Module,
    *,
    dense: nn.Module | None,
    before: Mapping[str, Any],
    validation: Samples,
) -> dict[str, Any]:
    """Everything known about a finished run, as plain data."""
    parts = Parts(session.warn)
    device = next(small.parameters()).device
    example = parts.make("example", lambda: one_sample(validation, device), None)
    last = session.history[-1]
    facts: dict[str, Any] = {"counter": COUNTER, "before": dict(before), "agreement": None}
    facts["after"] = parts.make("size of the small model", lambda: describe_model(small, example), {})
    facts["after"] |= {name: last[name] for name in ("top1", "top5", "validation_loss")}
    facts["after"]["metrics"] = last.get("metrics") or {}
    facts["after"]["num_samples"] = len(validation)
    facts["costs"] = []
    if dense is not None and example is not None:
        times = parts.make("latency", lambda: measure_both(small, dense, example), {})
        for name, found in times.items():
            facts[name]["latency_ms"] = found
        facts["costs"] = parts.make("costs per layer", lambda: measure_layers(small, dense, example), [])
    if dense is not None:
        batch_size = trainer.order.batch_size
        facts["agreement"] = parts.make(
            "comparison with the dense model",
            lambda: compare_both(small, dense, validation, batch_size=batch_size),
            None,
        )
    return {
        "version": 1,
        **facts,
        "layers": parts.make("layers", lambda: describe_layers(trainer.pruner), []),
        "schedule": schedule_of(trainer, first_cut_at=session.first_cut_at, cut_at=session.cut_at),
        "optimizer": type(trainer.optimizer).__name__,
        "num_skipped": trainer.num_skipped,
        "controller_samples": len(trainer.controller_samples) if trainer.pruner is not None else 0,
        "seconds": session.seconds,
        # The page shows the model's name; runs of the command record their own.
        "config": {"model": type(trainer.model).__name__} | session.config,
        "changed": changed_settings(trainer.settings, session.config),
        "data": describe_classes(session.data),
        "about": describe_about(small),
        "environment": session.environment,
        "history": session.history,
        "missing": parts.missing,
    }


def write_page(session: Session, folder: Path, report: Mapping[str, Any]) -> None:
    """Write the page and the model card, with a warning if that fails; `trainonce report` can try again."""
    Parts(session.warn).make("page", lambda: write_report(folder, report), None)
