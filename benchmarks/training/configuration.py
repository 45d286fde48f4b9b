"""One run as plain data: takes what distinguishes it, gives the place where its result is kept.

Needs nothing but Python.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.sheets.sheet import CACHE, RESULTS
from benchmarks.training.records import recorded

RUNS = CACHE / "accuracy"
_ADDED = frozenset(("task", "recipe", "start_epochs", "teacher_epochs", "for_validation", "is_halved"))


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

    task: str = "images"
    """`images` or `language`."""

    recipe: str = "short"
    """A name in `harness.recipe.RECIPES`."""

    start_epochs: int | None = None
    """Begins with the weights of the dense run of so many epochs; None: from scratch."""

    teacher_epochs: int | None = None
    """Also learns from the dense model of so many epochs; None: from the labels alone."""

    for_validation: bool = False
    """Tested on images that are set aside from those to train on, as whoever tunes settings has to."""

    is_halved: bool = False
    """Images of half the height and width."""

    @property
    def name(self) -> str:
        """For people; the hash at its end for the machine."""
        # What was added since the first runs were recorded counts only where it is used.
        unused = {
            field.name
            for field in fields(self)
            if field.name in _ADDED and getattr(self, field.name) == field.default
        }
        facts = {name: value for name, value in asdict(self).items() if name not in unused}
        # Where the images lie makes no difference; what they are does.
        facts["data"] = Path(self.data).name if self.data else None
        mark = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
        model = f"resnet{self.depth}" if self.task == "images" else "decoder"
        sizes = f"{model}-keep{self.keep_flops:g}-epochs{self.epochs}-seed{self.seed}"
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
    def weights_file(self) -> Path:
        """The weights that a dense run ended with; committed beside the sheets where other runs need them."""
        made_here = RUNS / "weights" / f"{self.name}.safetensors"
        committed = RESULTS / "weights" / made_here.name
        return committed if committed.exists() and not made_here.exists() else made_here

    def dense_of(self, epochs: int) -> Configuration:
        """The dense run that this one begins with or learns from."""
        recipe = "converged" if self.recipe == "fine_tuning" else self.recipe
        return replace(
            self,
            contender="dense",
            keep_flops=1.0,
            epochs=epochs,
            recipe=recipe,
            start_epochs=None,
            teacher_epochs=None,
        )

    @property
    def needed(self) -> tuple[Configuration, ...]:
        """The dense runs whose weights this one reads."""
        return tuple(self.dense_of(epochs) for epochs in (self.start_epochs, self.teacher_epochs) if epochs)

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
