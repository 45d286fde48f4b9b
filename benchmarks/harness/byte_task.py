"""The next byte of Python's own sources, which are on every machine."""

from __future__ import annotations

import math
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.harness.decoder import Decoder, draw_weights
from benchmarks.harness.task import Batch, Task

CONTEXT = 256
TEST_BYTES = 256 * 1024
_LEFT_OUT = {"site-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__", "ensurepip"}
"""What pip put there, and tests, which are mostly data."""


@dataclass(frozen=True, slots=True)
class Text:
    """Bytes to train and to test on, split by file."""

    train: Tensor
    test: Tensor


@dataclass(frozen=True, slots=True)
class ByteTask(Task):
    """An epoch is `batches_per_epoch` batches of windows at random places: the text is longer than a run."""

    text: Text
    batches_per_epoch: int = 100
    data_name: str = f"the sources of Python {platform.python_version()}"

    def build(self, *, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Decoder()
            draw_weights(model)
        return model

    def draw_weights(self, model: nn.Module) -> None:
        draw_weights(model)

    def example(self, num_samples: int = 2) -> Tensor:
        return self.text.test[: num_samples * CONTEXT].view(num_samples, CONTEXT).long()

    def steps_per_epoch(self, batch_size: int) -> int:
        return self.batches_per_epoch

    def batches(self, *, seed: int, epoch: int, batch_size: int) -> Iterator[Batch]:
        random = numpy.random.RandomState([seed, epoch])
        for _ in range(self.batches_per_epoch):
            yield self._windows(random.randint(0, len(self.text.train) - CONTEXT - 1, batch_size))

    def held_batch(self, *, seed: int, step: int, batch_size: int) -> Batch:
        """From one twentieth of the text, whose place depends on the seed."""
        num_held = len(self.text.train) // 20
        first = numpy.random.RandomState([seed, 1_000_003]).randint(0, len(self.text.train) - num_held)
        random = numpy.random.RandomState([seed, 1_000_033, step])
        return self._windows(first + random.randint(0, num_held - CONTEXT - 1, batch_size))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def tested(self, model: nn.Module) -> dict[str, float]:
        """Bits per byte over the whole test text, in windows that don't overlap."""
        was_training, total, count = model.training, 0.0, 0
        model.eval()
        num_windows = (len(self.text.test) - 1) // CONTEXT
        places = numpy.arange(num_windows) * CONTEXT
        for part in numpy.array_split(places, max(1, num_windows // 32)):
            inputs, targets = self._windows(part, self.text.test)
            total += float(cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="sum"))
            count += targets.numel()
        model.train(was_training)
        return {"bits_per_byte": total / count / math.log(2), "test_loss": total / count}

    def _windows(self, places: numpy.ndarray, text: Tensor | None = None) -> Batch:
        text = self.text.train if text is None else text
        index = torch.from_numpy(places)[:, None] + torch.arange(CONTEXT + 1)
        windows = text[index].long()
        return windows[:, :-1], windows[:, 1:]


@cache
def python_sources(*, for_validation: bool = False) -> Text:
    """All modules of the standard library in a fixed random order, some of the files held back to test on.

    With `for_validation` the test files are set aside, and others of the training files take their place.
    """
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(path for path in root.rglob("*.py") if _LEFT_OUT.isdisjoint(path.relative_to(root).parts))
    order = numpy.random.RandomState(0).permutation(len(files))
    contents = [files[number].read_bytes() for number in order]
    first, contents = _until(TEST_BYTES, contents)
    if for_validation:
        first, contents = _until(TEST_BYTES, contents)
    return Text(train=_joined(contents), test=_joined(first))


def _until(num_bytes: int, contents: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Split whole files off until there are so many bytes."""
    taken = 0
    for number, content in enumerate(contents):
        if taken >= num_bytes:
            return contents[:number], contents[number:]
        taken += len(content)
    raise ValueError(f"this Python has only {taken} bytes of sources; {num_bytes} are needed to test on")


def _joined(contents: list[bytes]) -> Tensor:
    return torch.frombuffer(bytearray(b"\n".join(contents)), dtype=torch.uint8)
