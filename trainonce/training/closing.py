"""What follows once the small model is safe: takes a finished run, gives its report and page.

A part that fails is told and left out: a run that has trained for days must not end in an error because
somebody's model can't be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from trainonce.plain_text import in_one_line
from trainonce.report.writing import write_report
from trainonce.training.measures import COUNTER
from trainonce.training.outcome import compare_both, describe_layers, describe_model, measure_both, one_sample
from trainonce.training.samples import Samples
from trainonce.training.session import Session
from trainonce.training.trainer import Trainer

Part = TypeVar("Part")
LONGEST_REASON = 200


class Parts:
    """The parts of a report; what can't be made is told once and named in `missing`."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.missing: dict[str, str] = {}
        self._tell = tell

    def make(self, name: str, part: Callable[[], Part], otherwise: Part) -> Part:
        """The part; `otherwise` if making it fails: a user's model may raise anything."""
        try:
            return part()
        except Exception as error:
            # Without control characters: it is printed, and a report that holds some is refused.
            words = in_one_line(error, LONGEST_REASON)
            self.missing[name] = f"{type(error).__name__}: {words}" if words else type(error).__name__
            self._tell(f"the report goes without {name} ({self.missing[name]})")
            return otherwise


def make_report(
    session: Session, trainer: Trainer, small: nn.Module, *, dense: nn.Module | None, before: Mapping[str, Any], validation: Samples
) -> dict[str, Any]:
    """Everything that is known about a run whose small model is trained."""
    parts = Parts(session.warn)
    device = next(small.parameters()).device
    example = parts.make("an example", lambda: one_sample(validation, device), None)
    last = session.history[-1]
    facts: dict[str, Any] = {"counter": COUNTER, "before": dict(before), "agreement": None}
    facts["after"] = parts.make("the small model's size", lambda: describe_model(small, example), {})
    facts["after"] |= {name: last[name] for name in ("top1", "top5", "validation_loss")}
    if dense is not None and example is not None:
        times = parts.make("latency", lambda: measure_both(small, dense, example), {})
        for name, found in times.items():
            facts[name]["latency_ms"] = found
    if dense is not None:
        batch_size = trainer.order.batch_size
        facts["agreement"] = parts.make(
            "the comparison of cut and uncut", lambda: compare_both(small, dense, validation, batch_size=batch_size), None
        )
    return {
        "version": 1,
        **facts,
        "layers": parts.make("layers", lambda: describe_layers(trainer.pruner), []),
        "schedule": session.describe_schedule(trainer),
        "optimizer": type(trainer.optimizer).__name__,
        "num_skipped": trainer.num_skipped,
        "controller_samples": len(trainer.controller_samples) if trainer.pruner is not None else 0,
        "seconds": session.seconds,
        # The page names the model; a run of the command has its full name there.
        "config": {"model": type(trainer.model).__name__} | session.config,
        "environment": session.environment,
        "history": session.history,
        "missing": parts.missing,
    }


def write_page(session: Session, folder: Path, report: Mapping[str, Any]) -> None:
    """Write the page and the model card; a failure is told, and `trainonce report` can try again."""
    Parts(session.warn).make("its page", lambda: write_report(folder, report), None)
