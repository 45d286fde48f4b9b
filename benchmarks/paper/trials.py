"""The runs that a row of the paper's tables needs: one dense, one small for each method; each in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.paper.fewer import fewer
from trainonce.recipes.paper import Row, run_of
from trainonce.recipes.run import Run, check_run, open_run_data, run_from, scale_epochs, train
from trainonce.runs.file_names import REPORT
from trainonce.runs.folder import Stage, stage_of
from trainonce.runs.report.live import View
from trainonce.training.session import MAY_DIFFER
from trainonce.training.settings import as_plain

OF_PRUNING = ("keep_flops", "keep_params", "protect", "round_to", "method")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How far runs are cut down to be tried; None leaves the row as the paper has it."""

    epochs: int | None = None
    num_images: int | None = None
    num_validation: int | None = None
    data: str | None = None
    """Other data, such as `folder:PATH`."""

    def of(self, row: Row) -> str:
        """What of a row was cut down, in words; empty if nothing was."""
        whole = run_of(row)
        words = []
        if self.data is not None and self.data != whole.data:
            words.append(f"on {'a folder of images' if ':' in self.data else self.data}")
        if self.epochs is not None and self.epochs != whole.epochs:
            words.append(f"{self.epochs} of {whole.epochs} epochs")
        if self.num_images is not None:
            words.append(f"{self.num_images:,} images")
        if self.num_validation is not None:
            words.append(f"{self.num_validation:,} to validate on")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a row."""

    run: Run
    cut: Cut
    folder: Path

    @property
    def report(self) -> Mapping[str, Any] | None:
        """What came of it; None before it is finished."""
        if stage_of(self.folder) is not Stage.FINISHED:
            return None
        return json.loads((self.folder / REPORT).read_text(encoding="utf-8"))

    def do(self, view: View) -> None:
        """Train to the end, from where an earlier try stopped."""
        check_run(self.run)
        is_cut = self.cut.num_images is not None or self.cut.num_validation is not None
        data = None
        if is_cut:
            data = fewer(
                open_run_data(self.run),
                num_images=self.cut.num_images,
                num_validation=self.cut.num_validation,
            )
        train(self.run, out=self.folder, resume=True, view=view, data=data)


def trial_of(
    row: Row, *, method: str | None, cut: Cut, settings: Mapping[str, Any], seed: int, place: Path
) -> Trial:
    """The run of a row by a method, or dense if it is None; `settings` are changed in both."""
    run = run_of(row)
    if cut.epochs is not None:
        run = scale_epochs(run, cut.epochs)
    if cut.data is not None:
        run = replace(run, data=cut.data)
    # A dense run has no method: rows of one model share it.
    changes = {"method": "default", "keep_flops": 1.0} if method is None else {"method": method}
    run = run_from({**changes, **settings, "seed": seed}, run)
    name = f"{row.data}.{row.model.rpartition(':')[2]}-dense" if method is None else f"{row.recipe}-{method}"
    return Trial(run, cut, place / f"{name}-{_mark(run, cut)}")


def _mark(run: Run, cut: Cut) -> str:
    """Equal for runs with the same result."""
    told = {name: value for name, value in as_plain(run).items() if name not in MAY_DIFFER}
    told |= {"num_images": cut.num_images, "num_validation": cut.num_validation}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]
