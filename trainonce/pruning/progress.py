"""The progress of a pruner: as one line, and as a table for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass

from trainonce.pruning.algorithm import AutoTrainOnce
from trainonce.pruning.schedule import Phase


@dataclass(frozen=True, slots=True)
class Progress:
    """A pruner at one point of its run."""

    phase: Phase
    num_steps: int
    total_steps: int
    keep_now: float
    keep_target: float
    counted: str
    """What the shares are of: FLOPs or parameters."""

    num_cuts: int
    alive: Mapping[str, tuple[int, int]]
    """For each group, how many units stay of how many."""

    @classmethod
    def of(cls, algorithm: AutoTrainOnce, phase: Phase) -> Progress:
        """A run as it is now."""
        budget, masks = algorithm.budget, algorithm.masks
        return cls(
            phase,
            algorithm.num_steps,
            algorithm.timetable.total_steps,
            budget.share_of(masks),
            budget.share,
            budget.counted,
            len(algorithm.cuts.plans),
            {name: (int(mask.sum()), len(mask)) for name, mask in budget.units.split(masks).items()},
        )

    @property
    def kept(self) -> str:
        """The share that is kept, beside its target."""
        return f"{100 * self.keep_now:.1f} % of the {self.counted} (target {100 * self.keep_target:g} %)"

    def as_line(self) -> str:
        """One line of text."""
        step = f"step {self.num_steps} of {self.total_steps}"
        cuts = f"{self.num_cuts} cut{'' if self.num_cuts == 1 else 's'} so far"
        return f"Pruner({self.phase.value}, {step}, keeps {self.kept}, {cuts})"

    def as_html(self) -> str:
        """A small table, with the width of each group folded below it."""
        facts = {
            "phase": self.phase.value,
            "step": f"{self.num_steps} of {self.total_steps}",
            "keeps": self.kept,
            "cuts so far": str(self.num_cuts),
        }
        rows = "".join(f"<tr><th>{label}</th><td>{fact}</td></tr>" for label, fact in facts.items())
        groups = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{left} of {whole}</td></tr>"
            for name, (left, whole) in self.alive.items()
        )
        return (
            f"<table><caption>Pruner</caption>{rows}</table>"
            f"<details><summary>channels kept in {len(self.alive)} groups</summary>"
            f"<table>{groups}</table></details>"
        )
