"""Export to ONNX, torch.export and safetensors; each file is compared with the model."""

from __future__ import annotations

import importlib
import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainonce.data.samples import Samples
from trainonce.errors import ExportError
from trainonce.execution.comparison import Difference, compare
from trainonce.execution.logits import logits_of
from trainonce.messages.plain_text import reason_of
from trainonce.storage.artifact.about import about_of
from trainonce.storage.atomic import draft_of, refuse_links
from trainonce.zoo.artifacts import load, save

LARGEST_DIFFERENCE = 1e-3
"""Relative to the largest logit; ONNX Runtime sums in another order."""

STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""Where torch notes the code of an operator."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported file that agrees with the model."""

    path: Path
    num_samples: int
    largest_difference: float
    """Of the logits, relative to the largest logit."""


def check_onnx_packages() -> None:
    """Raise ExportError unless all that ONNX export needs is installed."""
    try:
        for package in ("onnx", "onnxscript", "onnxruntime"):
            importlib.import_module(package)
    except ImportError:
        raise ExportError(
            "ONNX export needs more packages. Install them with: pip install onnx onnxscript onnxruntime"
        ) from None


def export_onnx(model: nn.Module, samples: Samples, path: Path) -> Exported:
    """Write an ONNX file for any batch size, and run it on every sample with ONNX Runtime."""
    check_onnx_packages()
    import onnxruntime

    with draft_in(path) as draft:
        write_onnx(model, samples, draft)
        session = onnxruntime.InferenceSession(str(draft), providers=["CPUExecutionProvider"])
        return _compared(
            _Placed(model, _device_of(model)),
            samples,
            path,
            lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0]),
        )


def write_onnx(model: nn.Module, samples: Samples, path: Path) -> None:
    """Write an ONNX file for any batch size, with what is known about the model; nothing is compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                model.eval(),
                (_first_inputs(samples).to(_device_of(model)),),
                str(path),
                input_names=["images"],
                output_names=["scores"],
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                external_data=False,
                verbose=False,
            )
        except OSError:
            raise
        except Exception as error:
            raise ExportError(
                f"torch can't export this model ({reason_of(error)}). Try --format pt2."
            ) from error
    describe_onnx(path, model)


def describe_onnx(path: Path, model: nn.Module) -> None:
    """Write what is known about the model into the file's metadata: one JSON value each.

    The lines of code that torch notes for each operator are left out: they name folders of this machine.
    """
    import onnx

    content = onnx.load(str(path))
    known = about_of(model).to_data()
    if known:
        onnx.helper.set_model_props(content, {key: json.dumps(value) for key, value in known.items()})
    for node in content.graph.node:
        kept = [note for note in node.metadata_props if note.key != STACK_TRACE]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(content, str(path))


def export_program(model: nn.Module, samples: Samples, path: Path) -> Exported:
    """Write a `torch.export` program for any batch size, and compare it.

    Loading such a file can run code, so the bytes that were made here are loaded, never a file.
    """
    content = io.BytesIO()
    try:
        example = _first_inputs(samples).to(_device_of(model))
        program = torch.export.export(
            model.eval(), (example,), dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
        # Into memory: torch aborts the process if it writes to a full disk.
        torch.export.save(program, content)
    except Exception as error:
        raise ExportError(f"torch can't export this model ({reason_of(error)}).") from error
    content.seek(0)
    device = _device_of(model)
    found = _compared(
        _Placed(model, device), samples, path, _Placed(torch.export.load(content).module(), device)
    )
    with draft_in(path) as draft:
        draft.write_bytes(content.getvalue())
        if draft.read_bytes() != content.getvalue():
            raise OSError("it was not written correctly")
    return found


@contextmanager
def draft_in(path: Path) -> Iterator[Path]:
    """A temporary file that replaces `path` if the block succeeds, and is removed otherwise."""
    refuse_links(path, within=path.parent)
    draft = draft_of(path)
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        reason = error.strerror or reason_of(error)
        raise ExportError(
            f"can't write {path} ({reason}). Check disk space and permissions, or pass another --out."
        ) from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def export_artifact(
    model: nn.Module, samples: Samples, path: Path, *, build: Callable[[], nn.Module]
) -> Exported:
    """Write the folder that `trainonce.load` reads, and load it into a freshly built model."""
    save(model, path)
    device = _device_of(model)
    return _compared(_Placed(model, device), samples, path, _Placed(load(path, into=build()).eval(), device))


class _Placed(nn.Module):
    """A model on its device that takes inputs from the CPU and returns its logits there."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.model = model.to(device)
        self.device = device

    def train(self, mode: bool = True) -> _Placed:
        """Stay in eval mode: an exported program has no other."""
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits."""
        return logits_of(self.model(inputs.to(self.device))).cpu()


def _device_of(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _first_inputs(samples: Samples) -> Tensor:
    # Two samples: torch.export would take a batch size of 1 for a constant.
    inputs, _ = next(iter(samples.batches([(torch.arange(2), 0)])))
    return inputs


@torch.no_grad()
def _compared(model: nn.Module, samples: Samples, path: Path, run: Callable[[Tensor], Any]) -> Exported:
    num_samples, difference = 0, Difference()
    model.eval()
    for inputs, _ in samples.batches((piece, 0) for piece in torch.arange(len(samples)).split(64)):
        wanted, found = model(inputs), run(inputs)
        here = compare(wanted, found)
        if here.num_nan:
            raise ExportError(
                "the model returns NaN on a validation sample: it has diverged, so there is nothing to "
                "export."
            )
        _check_classes(wanted, found, path)
        num_samples += len(inputs)
        difference |= here
    if difference.relative > LARGEST_DIFFERENCE:
        raise ExportError(
            f"{path} differs from the model by {difference.relative:.1e} of the largest logit. Please report "
            "this."
        )
    return Exported(path=path, num_samples=num_samples, largest_difference=difference.relative)


def _check_classes(wanted: Tensor, found: Tensor, path: Path) -> None:
    differs = wanted.argmax(dim=1) != found.argmax(dim=1)
    if not bool(differs.any()):
        return
    gap = wanted.topk(2, dim=1).values.diff(dim=1).abs()
    # Classes with the same logit may swap places.
    if float(gap[differs].max()) > LARGEST_DIFFERENCE * float(wanted.abs().max()):
        raise ExportError(
            f"{path} predicts another class for a validation sample. Please report this, with the model's "
            "name."
        )
