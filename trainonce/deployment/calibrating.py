"""Quantization: takes a float ONNX file and samples, gives an int8 file with the ranges that differ least.

Weights are symmetric int8 per output channel, activations are uint8: CPUs with VNNI multiply these without
saturation, and a ReLU costs nothing, as a range that begins at zero does the same.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainonce.data.samples import Samples
from trainonce.errors import ExportError
from trainonce.messages.plain_text import in_one_line, reason_of

CALIBRATION_SAMPLES = 256
"""Ranges of activations settle well before; as many more samples judge the candidates."""

BATCH_SIZE = 8
"""Calibration holds all activations of a batch in memory."""

QUANTIZED_KINDS = (
    *("Conv", "Gemm", "MatMul", "Add", "Mul", "Relu", "Clip", "LeakyRelu", "Sigmoid", "Concat", "Split"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "Pad", "Slice", "Resize"),
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"),
)
"""Operators; normalizations and softmax stay in float, where they are as fast and more accurate."""

WEIGHTED_KINDS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN")
"""Operators that hold nearly all of a model's work."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to find the range of an activation."""

    words: str
    method: str
    options: Mapping[str, Any]


CANDIDATES = (
    Candidate("smallest to largest value", "MinMax", {}),
    Candidate("99.99 % of the values", "Percentile", {"CalibPercentile": 99.99}),
)


@dataclass(frozen=True, slots=True)
class Batches:
    """Training samples in float."""

    seen: list[np.ndarray]
    """Ranges are found on these."""

    judged: list[np.ndarray]
    """Candidates are compared on these."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The chosen int8 file."""

    content: bytes
    words: str
    """Which range of each activation is covered."""

    num_samples: int
    """Training samples that the ranges come from."""

    difference: float
    """Root mean square difference from the float model's logits on other training samples, relative."""


def read_calibration(samples: Samples) -> Batches:
    """Training samples to calibrate on and others to judge by; the same ones each time."""
    if not len(samples):
        raise ExportError("there are no training samples to calibrate with. Pass data that has some.")
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))
    num_seen = min(CALIBRATION_SAMPLES, max(1, len(samples) // 2))
    # A single sample has to serve for both.
    judged = order[num_seen : 2 * num_seen] if len(samples) > 1 else order
    return Batches(_batches(samples, order[:num_seen]), _batches(samples, judged))


def quantize(float_file: Path, batches: Batches, folder: Path) -> Calibrated:
    """The int8 model whose logits differ least from the float model's, on samples that it wasn't made from.

    `folder` is for files in between.
    """
    seen, judged = batches.seen, batches.judged
    import onnxruntime
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = folder / "prepared.onnx"
    with _quiet():
        try:
            quant_pre_process(str(float_file), str(prepared))
        except Exception:
            # Symbolic shapes can't be inferred for every model; ranges are found without them, too.
            try:
                quant_pre_process(str(float_file), str(prepared), skip_symbolic_shape=True)
            except Exception as error:
                raise _refusal(reason_of(error)) from error
        session = onnxruntime.InferenceSession(str(float_file), providers=["CPUExecutionProvider"])
        wanted = _logits(session, judged)
        if not np.isfinite(wanted).all():
            raise ExportError(
                "the model returns NaN on training samples: it has diverged, so there is nothing to export."
            )
        found: list[Calibrated] = []
        reasons: list[str] = []
        for number, candidate in enumerate(CANDIDATES):
            file = folder / f"candidate{number}.onnx"
            try:
                _write(prepared, file, candidate, seen)
                session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
                difference = _relative(wanted, _logits(session, judged))
            except Exception as error:
                reasons.append(reason_of(error))
                continue
            if np.isfinite(difference):
                size = sum(map(len, seen))
                found.append(Calibrated(file.read_bytes(), candidate.words, size, difference))
            else:
                reasons.append("the quantized model returns NaN")
    if not found:
        raise _refusal("; ".join(dict.fromkeys(reasons)))
    return min(found, key=lambda one: one.difference)


def layers_in_float(content: bytes) -> tuple[int, dict[str, str]]:
    """How many layers with weights are quantized, and the others with the reason."""
    import onnx

    graph = onnx.load_from_string(content).graph
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    num_quantized, left = 0, {}
    for node in graph.node:
        if node.op_type not in WEIGHTED_KINDS:
            continue
        if node.op_type in QUANTIZED_KINDS and all(
            made_by.get(name) == "DequantizeLinear" for name in node.input[:2]
        ):
            num_quantized += 1
        elif node.op_type not in QUANTIZED_KINDS:
            left[node.name] = f"{node.op_type} has no fast int8 kernel in ONNX Runtime"
        elif made_by.get(node.input[1]) is None:
            left[node.name] = "ONNX Runtime found no range for its input"
        else:
            left[node.name] = "its second factor is computed, not a weight"
    return num_quantized, left


def _batches(samples: Samples, indices: torch.Tensor) -> list[np.ndarray]:
    draws = ((piece, 0) for piece in indices.split(BATCH_SIZE))
    found = [inputs.numpy() for inputs, _ in samples.batches(draws)]
    if not all(np.isfinite(inputs).all() for inputs in found):
        raise ExportError("there is a NaN in the training samples that --int8 is calibrated with. Fix them.")
    return found


class _Reader:
    """Batches as ONNX Runtime reads them."""

    def __init__(self, batches: list[np.ndarray]) -> None:
        self._batches = batches
        self.set_range(0, len(batches))

    def __len__(self) -> int:
        return len(self._batches)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Read these next."""
        self._left = iter(self._batches[start_index:end_index])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next batch; None after the last."""
        batch = next(self._left, None)
        return None if batch is None else {"images": batch}


def _write(prepared: Path, file: Path, candidate: Candidate, batches: list[np.ndarray]) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    reader: Any = _Reader(batches)
    quantize_static(
        str(prepared),
        str(file),
        reader,
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=list(QUANTIZED_KINDS),
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod[candidate.method],
        # A stride of one batch, for any method: otherwise activations of all batches are in memory at once.
        extra_options={"CalibStridedMinMax": 1, **candidate.options},
    )


def _logits(session: Any, batches: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([session.run(None, {"images": batch})[0] for batch in batches])


def _relative(wanted: np.ndarray, found: np.ndarray) -> float:
    scale = float(np.sqrt(np.mean(np.square(wanted, dtype=np.float64))))
    return float(np.sqrt(np.mean(np.square(found.astype(np.float64) - wanted)))) / max(scale, 1e-30)


def _refusal(reason: str) -> ExportError:
    return ExportError(
        f"ONNX Runtime can't quantize this model ({in_one_line(reason, 600)}). Export it without --int8."
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what ONNX Runtime prints and logs; errors still come."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
