"""`export --int8`: takes the dense and the small model, gives an int8 ONNX file and all three in numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainonce.data.samples import Samples
from trainonce.deployment.calibrating import Calibrated, layers_in_float, quantize, read_calibration
from trainonce.deployment.exporting import check_onnx_packages, describe_onnx, draft_in, write_onnx
from trainonce.engines.runtimes import session_opener
from trainonce.engines.timing import Milliseconds, TooSlowError, time_in_turns
from trainonce.errors import ExportError

BATCH_SIZES = (1, 32)
SECONDS = 5.0
"""Measuring time for each batch size."""

LONGEST = 60.0
"""No call begins later, if calls are slow."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One model as an ONNX file in ONNX Runtime."""

    name: str
    top1: float | None
    """In percent of the validation samples; None for a dense model that nobody has trained."""

    bytes: int
    """Of the file."""

    milliseconds: Mapping[str, Milliseconds]
    """By batch size."""


@dataclass(frozen=True, slots=True)
class Int8:
    """An int8 file, and how it compares."""

    path: Path
    standings: tuple[Standing, ...]
    """Dense, small, small in int8."""

    num_validation: int
    threads: int
    ranges: str
    """Which range of each activation is covered."""

    num_calibration: int
    """Training samples that the ranges come from."""

    num_layers: int
    """Layers with weights that compute in int8."""

    left_in_float: Mapping[str, str]
    """The others, with the reason."""

    def to_data(self) -> dict[str, Any]:
        """Plain data for a report; the path stays out of it."""
        found = asdict(replace(self, path=Path(self.path.name)))
        return found | {"path": self.path.name, "standings": list(found["standings"])}


def export_int8(
    small: nn.Module,
    dense: nn.Module,
    path: Path,
    *,
    calibration: Samples,
    validation: Samples,
    dense_top1: float | None = None,
    seconds: float | None = None,
    batch_sizes: tuple[int, ...] = BATCH_SIZES,
    say: Callable[[str], None] = lambda _: None,
) -> Int8:
    """Write an int8 ONNX file of the small model, and measure it beside the float files of both models.

    Times take `seconds` for each batch size, SECONDS by default. Activations are calibrated on `calibration`,
    training samples without augmentation. All three run in ONNX Runtime with torch's number of threads and
    are timed in turns. The file is whole or absent.
    """
    seconds = SECONDS if seconds is None else seconds
    check_onnx_packages()
    open_session = session_opener()
    # Damaged data is told before minutes are spent.
    batches = read_calibration(calibration)
    small, dense = small.cpu().eval(), dense.cpu().eval()
    with tempfile.TemporaryDirectory() as place, draft_in(path) as draft:
        folder = Path(place)
        files = {"dense": folder / "dense.onnx", "small": folder / "small.onnx", "small int8": draft}
        say("exporting the dense and the small model")
        write_onnx(dense, validation, files["dense"])
        write_onnx(small, validation, files["small"])
        say("quantizing")
        chosen = quantize(files["small"], batches, folder)
        num_layers, left = _layers_of(chosen)
        draft.write_bytes(chosen.content)
        describe_onnx(draft, small)
        sessions = {name: open_session(str(file)) for name, file in files.items()}
        say("evaluating")
        top1 = {name: _top1_of(sessions[name], name, validation) for name in ("small", "small int8")}
        say(f"measuring for {len(batch_sizes) * seconds:.0f} s")
        times = _time(sessions, validation, batch_sizes=batch_sizes, seconds=seconds)
        return Int8(
            path=path,
            standings=tuple(
                _standing(name, file, top1.get(name, dense_top1), times) for name, file in files.items()
            ),
            num_validation=len(validation),
            threads=torch.get_num_threads(),
            ranges=chosen.words,
            num_calibration=chosen.num_samples,
            num_layers=num_layers,
            left_in_float=left,
        )


def _layers_of(chosen: Calibrated) -> tuple[int, dict[str, str]]:
    """How many layers are in int8, and why the others are not; ExportError if none is."""
    num_layers, left = layers_in_float(chosen.content)
    if not num_layers:
        reason = next(iter(left.values()), "it has no convolution or linear layer")
        raise ExportError(f"no layer of this model can be quantized ({reason}). Export it without --int8.")
    return num_layers, left


def _standing(
    name: str, file: Path, top1: float | None, times: Mapping[str, Mapping[str, Milliseconds]]
) -> Standing:
    milliseconds = {size: found[name] for size, found in times.items()}
    return Standing(name=name, top1=top1, bytes=file.stat().st_size, milliseconds=milliseconds)


def _top1_of(session: Any, name: str, samples: Samples) -> float:
    num_right = num_samples = 0
    for inputs, labels in samples.batches((piece, 0) for piece in torch.arange(len(samples)).split(64)):
        scores = torch.from_numpy(session.run(None, {"images": inputs.numpy()})[0])
        if not bool(scores.isfinite().all()):
            raise ExportError(
                f"the {name} model returns NaN on a validation sample"
                + (
                    ". Export it without --int8."
                    if name != "small"
                    else ": it has diverged, so there is nothing to export."
                )
            )
        num_right += int((scores.argmax(dim=1) == labels).sum())
        num_samples += len(labels)
    return 100 * num_right / max(1, num_samples)


def _time(
    sessions: Mapping[str, Any], samples: Samples, *, batch_sizes: tuple[int, ...], seconds: float
) -> dict[str, dict[str, Milliseconds]]:
    """Milliseconds by batch size and session, on real samples, repeated if there are too few."""
    found = {}
    for size in batch_sizes:
        inputs, _ = next(iter(samples.batches([(torch.arange(size) % len(samples), 0)])))
        batch = {"images": inputs.numpy()}
        calls = {name: partial(session.run, None, batch) for name, session in sessions.items()}
        # A batch too slow to measure is left out of the table.
        with suppress(TooSlowError):
            found[str(size)] = time_in_turns(calls, seconds=seconds, longest=max(4 * seconds, LONGEST))
    return found
