"""How fast a model is where it is used: takes the dense and the small model, gives milliseconds per call in each engine, in turns."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.training.measures import Milliseconds, count_macs, measure_latency

ENGINES = ("eager", "compiled", "onnxruntime")


class MissingEngine(ValueError):
    """An engine that is not installed or does not run here."""


@dataclass(frozen=True, slots=True)
class Row:
    """One engine at one batch size."""

    engine: str
    batch_size: int
    dense: Milliseconds
    small: Milliseconds

    @property
    def speed_up(self) -> float:
        """How many times faster the small model is."""
        return self.dense.median / self.small.median

    def share_of(self, keep_flops: float) -> float:
        """How much of the saved FLOPs arrives as saved time: 1 is all of it."""
        return (1 - self.small.median / self.dense.median) / (1 - keep_flops) if keep_flops < 1 else 0.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What `bench` found."""

    keep_flops: float
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]
    """Engines that could not be measured, with the reason."""


def bench(
    dense: nn.Module,
    small: nn.Module,
    image: Tensor,
    *,
    batch_sizes: tuple[int, ...],
    engines: tuple[str, ...],
    seconds: float,
    say: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Both models in every engine at every batch size, each pair for `seconds`; `say` hears what comes next."""
    rows: list[Row] = []
    left_out: list[str] = []
    for engine in engines:
        for batch_size in batch_sizes:
            batch = image.expand(batch_size, -1, -1, -1).contiguous()
            say(f"{engine}, batch {batch_size}" + (": compiling takes a minute or more" if engine == "compiled" else ""))
            # Once for both models: it drops what was compiled before.
            torch.compiler.reset()
            try:
                models = {"dense": _prepare(engine, dense, batch), "small": _prepare(engine, small, batch)}
                times = measure_latency(models, batch, seconds=seconds)
            except MissingEngine as error:
                left_out.append(f"{engine}: {error}")
                break
            rows.append(Row(engine, batch_size, times["dense"], times["small"]))
    before, after = count_macs(dense, image), count_macs(small, image)
    return Bench(keep_flops=after / before if before and after else 1.0, rows=tuple(rows), left_out=tuple(left_out))


class _Session(nn.Module):
    """A model that ONNX Runtime runs."""

    def __init__(self, model: nn.Module, batch: Tensor) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError:
            raise MissingEngine("not installed; pip install 'trainonce[export]'") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = Path(folder) / "model.onnx"
            torch.onnx.export(model, (batch,), str(file), input_names=["images"], dynamo=True, external_data=False, verbose=False)
            self._session = onnxruntime.InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])

    def forward(self, images: Tensor) -> Any:
        """What the session gives."""
        return self._session.run(None, {"images": images.numpy()})


def _prepare(engine: str, model: nn.Module, batch: Tensor) -> nn.Module:
    return _PREPARE[engine](model.eval(), batch)


def _compiled(model: nn.Module, batch: Tensor) -> nn.Module:
    # It would say that there is no CUDA here, to whoever asked for a CPU.
    noisy = logging.getLogger("torch.utils.cpp_extension")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        compiled: Any = torch.compile(model, dynamic=False)
        with torch.no_grad():
            compiled(batch)
    except Exception as error:
        raise MissingEngine(" ".join(str(error).split())[:120]) from None
    finally:
        noisy.setLevel(level)
    return compiled


_PREPARE: Mapping[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "eager": lambda model, _: model,
    "compiled": _compiled,
    "onnxruntime": _Session,
}
