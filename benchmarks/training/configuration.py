"""One run as plain data: takes what distinguishes it, gives the place where its result is kept.

Needs nothing but Python.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.sheets.sheet import CACHE
from benchmarks.training.records import recorded

RUNS = CACHE / "accuracy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """Two runs with the same configuration and the same code have the same result."""

    contender: str
    keep_flops: float
    """1 for those that prune nothing."""

    seed: int
    depth: int = 20
    epochs: int = 15
    batch_size: int = 128
    num_images: int | None = None
    """So many of the images to train on; None: all."""

    data: str | None = None
    """A folder or tar of images; None: the digits."""

    @property
    def name(self) -> str:
        """For people; the hash at its end for the machine."""
        facts = asdict(self)
        # Where the images lie makes no difference; what they are does.
        facts["data"] = Path(self.data).name if self.data else None
        mark = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
        sizes = f"resnet{self.depth}-keep{self.keep_flops:g}-epochs{self.epochs}-seed{self.seed}"
        return f"{self.contender}-{sizes}-{mark}"

    @property
    def result_file(self) -> Path:
        """Written once, when the run is over."""
        return RUNS / f"{self.name}.json"

    @property
    def epochs_file(self) -> Path:
        """One JSON line an epoch."""
        return RUNS / f"{self.name}.jsonl"

    @property
    def state_folder(self) -> Path:
        """Where an unfinished run goes on from."""
        return RUNS / "states" / self.name

    @property
    def weights_folder(self) -> Path:
        """The weights that a dense run ended with."""
        return RUNS / "weights" / self.name

    def result(self, *, of_code: str | None = None, made_here: bool = False) -> dict[str, Any] | None:
        """What the run gave, here or as it is recorded.

        None if it is not over, or was made by other code than `of_code`.
        """
        here = json.loads(self.result_file.read_text()) if self.result_file.exists() else None
        for result in (here, None if made_here else recorded(self.name)):
            if result is not None and of_code in (None, result.get("of_code")):
                return result
        return None

    def num_epochs_done(self) -> int:
        """For the progress bar."""
        return len(self.epochs_file.read_text().splitlines()) if self.epochs_file.exists() else 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))
