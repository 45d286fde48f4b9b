"""How fast a model is where it is used.

Takes the dense and the small model, gives milliseconds per call in each engine, in turns.
"""

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

from trainonce.errors import EngineError
from trainonce.messages.plain_text import reason_of
from trainonce.training.results.measures import Milliseconds, count_macs, is_out_of_memory, measure_latency

ENGINES = ("eager", "compiled", "onnxruntime")
LARGEST_BATCH = 2**20
CPU = torch.device("cpu")


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
    device: str
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]
    """Engines and batch sizes that could not be measured, with the reason."""


def bench(
    dense: nn.Module,
    small: nn.Module,
    image: Tensor,
    *,
    batch_sizes: tuple[int, ...],
    engines: tuple[str, ...],
    seconds: float,
    device: torch.device = CPU,
    say: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Both models in every engine at every batch size on one device, each pair for `seconds`.

    `say` hears what comes next. The models are moved to the device, and stay there.
    """
    rows: list[Row] = []
    left_out: list[str] = []
    dense, small, image = dense.to(device), small.to(device), image.to(device)
    for engine in engines:
        for batch_size in batch_sizes:
            say(
                f"{engine}, batch {batch_size}"
                + (": compiling takes a minute or more" if engine == "compiled" else "")
            )
            # Once for both models: it drops what was compiled before.
            torch.compiler.reset()
            try:
                batch = image.expand(batch_size, *image.shape[1:]).contiguous()
                models = {"dense": _prepare(engine, dense, batch), "small": _prepare(engine, small, batch)}
                times = measure_latency(models, batch, seconds=seconds)
            except EngineError as error:
                left_out.append(f"{engine}: {error}")
                break
            except (RuntimeError, MemoryError) as error:
                # Too large for the memory, or more than the model takes: the other sizes may do.
                left_out.append(f"{engine}, batch {batch_size}: {reason_of(error)}")
                continue
            rows.append(Row(engine, batch_size, times["dense"], times["small"]))
    before, after = count_macs(dense, image), count_macs(small, image)
    keep_flops = after / before if before and after else 1.0
    return Bench(keep_flops=keep_flops, device=str(device), rows=tuple(rows), left_out=tuple(left_out))


class _Session(nn.Module):
    """A model that ONNX Runtime runs."""

    def __init__(self, model: nn.Module, batch: Tensor) -> None:
        super().__init__()
        if batch.device.type != "cpu":
            raise EngineError("measured on the CPU only; pass --device cpu")
        try:
            import onnxruntime
        except ImportError:
            raise EngineError("not installed; pip install 'trainonce[export]'") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = Path(folder) / "model.onnx"
            try:
                torch.onnx.export(
                    model,
                    (batch,),
                    str(file),
                    input_names=["images"],
                    dynamo=True,
                    external_data=False,
                    verbose=False,
                )
                self._session = onnxruntime.InferenceSession(
                    file.read_bytes(), options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:
                raise _refusal(error) from error

    def forward(self, images: Tensor) -> Any:
        """What the session gives."""
        try:
            return self._session.run(None, {"images": images.numpy()})
        except Exception as error:
            raise RuntimeError(reason_of(error)) from error


def _refusal(error: Exception) -> Exception:
    """What ends one batch size, if memory ran out, or else the whole engine."""
    return MemoryError(reason_of(error)) if is_out_of_memory(error) else EngineError(reason_of(error))


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
        raise _refusal(error) from None
    finally:
        noisy.setLevel(level)
    return compiled


_PREPARE: Mapping[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "eager": lambda model, _: model,
    "compiled": _compiled,
    "onnxruntime": _Session,
}
