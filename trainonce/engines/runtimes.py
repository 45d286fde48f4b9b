"""Runtimes by name: a model and a batch in, something callable in that runtime out."""

from __future__ import annotations

import importlib
import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.errors import EngineError
from trainonce.messages.plain_text import reason_of


def prepare(engine: str, model: nn.Module, batch: Tensor) -> nn.Module:
    """The model in eval mode, ready to be called on such a batch in an engine of ENGINES.

    EngineError if the engine can't run it, MemoryError if only this batch is too large.
    """
    return _PREPARE[engine](model.eval(), batch)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the CPU or on a GPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)


def session_opener() -> Callable[..., Any]:
    """What opens an ONNX file, or its bytes, in ONNX Runtime on the CPU, with as many threads as torch.

    EngineError if ONNX Runtime is not installed.
    """
    try:
        # An optional dependency, loaded by whoever asks for this engine.
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        raise EngineError("not installed; pip install onnx onnxscript onnxruntime") from None

    def open_session(content: bytes | str, *, profile: str | None = None) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        # Its warnings about a model are not for whoever waits for a table.
        options.log_severity_level = 3
        if profile is not None:
            options.enable_profiling, options.profile_file_prefix = True, profile
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    return open_session


class OnnxRuntime(nn.Module):
    """A model that ONNX Runtime runs on the CPU."""

    def __init__(self, model: nn.Module, batch: Tensor) -> None:
        super().__init__()
        if batch.device.type != "cpu":
            raise EngineError("runs on the CPU only; pass --device cpu")
        open_session = session_opener()
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
                self._session = open_session(file.read_bytes())
            except Exception as error:
                raise _refusal(error) from error

    def forward(self, images: Tensor) -> Any:
        """The session's outputs."""
        try:
            return self._session.run(None, {"images": images.numpy()})
        except Exception as error:
            raise RuntimeError(reason_of(error)) from error


def _compile(model: nn.Module, batch: Tensor) -> nn.Module:
    # It would warn that there is no CUDA, although the CPU was asked for.
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


def _refusal(error: Exception) -> Exception:
    """MemoryError rules out one batch size, EngineError the whole engine."""
    return MemoryError(reason_of(error)) if is_out_of_memory(error) else EngineError(reason_of(error))


_PREPARE: Mapping[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "eager": lambda model, _: model,
    "compiled": _compile,
    "onnxruntime": OnnxRuntime,
}
ENGINES = tuple(_PREPARE)
