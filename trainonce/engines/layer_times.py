"""Milliseconds of each layer beside its FLOPs: takes one model and an engine, gives rows that add up."""

from __future__ import annotations

import ast
import importlib
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainonce.engines.layer_costs import ELSEWHERE, count_by_module, sort_modules, time_by_module
from trainonce.engines.runtimes import session_opener
from trainonce.engines.timing import WARM_UP_CALLS
from trainonce.errors import EngineError
from trainonce.messages.plain_text import reason_of

LAYER_ENGINES = ("eager", "onnxruntime")
"""Those that run one layer after the other; torch.compile fuses kernels across layers."""

MOST_RUNS = 200
"""ONNX Runtime drops events of longer profiles."""

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "FusedConv", "FusedMatMul", "FusedGemm")


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One layer, or several of one kind that have no multiply-adds."""

    name: str
    """Empty for a kind."""

    kind: str
    count: int
    macs: int
    milliseconds: float


def time_layers(
    model: nn.Module, example: Any, *, engine: str = "eager", seconds: float = 3.0
) -> list[LayerTime]:
    """FLOPs and milliseconds of each layer, in the order in which layers are called; takes about `seconds`.

    In eager mode, timing each layer adds overhead. ONNX Runtime fuses layers: batch norm and activations are
    then part of the convolution before them, and its own operators have rows by kind.
    """
    if engine not in LAYER_ENGINES:
        raise EngineError(
            f"{engine} has no milliseconds per layer. Choose one of {', '.join(LAYER_ENGINES)}."
        )
    try:
        macs = count_by_module(model, example)
    except Exception:
        # Some models can't run on the meta device; their milliseconds are still worth knowing.
        macs = {}
    modules = dict(model.named_modules())
    if engine == "eager":
        times = time_by_module({"model": model}, example, seconds=seconds)["model"]
        kinds: dict[str, list[float]] = {}
    else:
        times, kinds = _time_in_onnxruntime(model, example, seconds=seconds)
    called = dict.fromkeys(
        name for name in (*macs, *times) if engine == "eager" or macs.get(name) or times.get(name)
    )
    if not macs:
        macs = dict.fromkeys(times, 0)
    layers, others, elsewhere = sort_modules(modules, called, macs)

    def row(name: str, kind: str, members: list[str]) -> LayerTime:
        work = round(sum(macs.get(member, 0) for member in members))
        return LayerTime(name, kind, len(members), work, sum(times.get(member, 0.0) for member in members))

    return [
        *(row(name, type(modules[name]).__name__, [name]) for name in layers),
        *(row("", kind, members) for kind, members in others.items()),
        *([row(ELSEWHERE, "", elsewhere)] if elsewhere else []),
        *(LayerTime("", kind, len(found), 0, sum(found)) for kind, found in kinds.items()),
    ]


def _time_in_onnxruntime(
    model: nn.Module, example: Any, *, seconds: float
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Milliseconds by module for operators with weights, and by kind for all others."""
    try:
        open_session = session_opener()
    except EngineError as error:
        raise EngineError(f"onnxruntime: {error}") from None
    if any(tensor.device.type != "cpu" for tensor in tree_leaves(example) if isinstance(tensor, Tensor)):
        raise EngineError("ONNX Runtime runs on the CPU only; pass --device cpu")
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(place) / "model.onnx"
        try:
            _export(model, example, file)
            session = open_session(file.read_bytes(), profile=str(Path(place) / "profile"))
            names = [given.name for given in session.get_inputs()]
            tensors = [leaf for leaf in tree_leaves(example) if isinstance(leaf, Tensor)]
            if len(names) != len(tensors):
                raise EngineError("some inputs are not used in the exported model")
            feed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
            end = time.perf_counter() + seconds
            num_runs = 0
            while num_runs < 2 * WARM_UP_CALLS or (time.perf_counter() < end and num_runs < MOST_RUNS):
                session.run(None, feed)
                num_runs += 1
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(f"ONNX Runtime can't run this model ({reason_of(error)})") from None
        return _book(events, _layers_by_name(file, dict(model.named_modules())))


def _export(model: nn.Module, example: Any, file: Path) -> None:
    was_training = model.training
    is_named = isinstance(example, Mapping)
    args = () if is_named else tuple(example) if isinstance(example, tuple | list) else (example,)
    try:
        with torch.no_grad():
            torch.onnx.export(
                model.eval(),
                args,
                str(file),
                kwargs=dict(example) if is_named else None,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        model.train(was_training)


def _book(
    events: list[dict[str, Any]], layers: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Medians of each operator's events, summed up by layer, or listed by kind where there is none."""
    durations: dict[tuple[str, str], list[float]] = {}
    for event in events:
        name, end, _ = str(event.get("name")).rpartition("_kernel_time")
        if event.get("cat") == "Node" and end:
            kind = str(event.get("args", {}).get("op_name"))
            durations.setdefault((name, kind), []).append(event["dur"] / 1000)
    times: dict[str, float] = {}
    kinds: dict[str, list[float]] = {}
    for (name, kind), found in durations.items():
        milliseconds = statistics.median(found[WARM_UP_CALLS:] or found)
        layer = layers.get(name.removesuffix("_nchwc")) if kind in _WEIGHTED else None
        if layer is None:
            kinds.setdefault(kind, []).append(milliseconds)
        else:
            times[layer] = times.get(layer, 0.0) + milliseconds
    return times, kinds


def _layers_by_name(file: Path, modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """The layer of each operator with weights, by the names that ONNX Runtime may give it.

    A fused operator has the name of its output, which may be that of an activation behind it.
    """
    onnx: Any = importlib.import_module("onnx")
    graph = onnx.load(str(file)).graph
    made_by = {name: node for node in graph.node for name in node.output}
    weights = {tensor.name for tensor in graph.initializer}
    found: dict[str, str] = {}
    for node in graph.node:
        origin = node
        while origin.op_type not in _WEIGHTED and origin.input and origin.input[0] in made_by:
            origin = made_by[origin.input[0]]
        if origin.op_type not in _WEIGHTED:
            continue
        layer = _layer_of(origin, weights, modules)
        if layer is not None:
            found.update(dict.fromkeys((node.name, *node.output), layer))
    return found


def _layer_of(node: Any, weights: set[str], modules: Mapping[str, nn.Module]) -> str | None:
    for name in node.input[1:]:
        module = name.rpartition(".")[0]
        if name in weights and module in modules:
            return module
    notes = {note.key: note.value for note in node.metadata_props}
    try:
        scopes = ast.literal_eval(notes.get("pkg.torch.onnx.name_scopes", "[]"))
    except (ValueError, SyntaxError):
        return None
    return next((scope for scope in reversed(scopes) if scope and scope in modules), None)
