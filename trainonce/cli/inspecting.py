"""`trainonce inspect`: takes the name of a model, shows its groups of channels."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from rich.console import Console
from rich.text import Text

import trainonce
from trainonce.cli.printing import show
from trainonce.engines.layer_times import LAYER_ENGINES, time_layers
from trainonce.engines.runtimes import ENGINES
from trainonce.errors import SettingError
from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.layer_table import as_layer_json, as_layer_table
from trainonce.runs.report.table import as_json, as_table
from trainonce.runs.report.uncertainty import counted
from trainonce.zoo.inputs import describe
from trainonce.zoo.sources import build

_SUMMARY = "show which channels of a model can be pruned, what they cost, and why the others can't"

_SOURCES = """\
models:
  cifar:resnet56                    one of the paper's models for small images
  torchvision:resnet50              any of torchvision.models.list_models()
  timm:convnext_tiny                any of timm.list_models()
  transformers:LlamaForCausalLM     a class of transformers, built from a small config
  my_package.models:build           your own function or class, called without arguments

Models are built with random weights; nothing is downloaded.
"""

_EXAMPLES = """\
examples:
  trainonce inspect torchvision:resnet50
  trainonce inspect torchvision:resnet50 --latency --engine onnxruntime
  trainonce inspect timm:swin_tiny_patch4_window7_224 --protect 'layers.0.*'
  trainonce inspect my_package.models:build --input 1x3x224x224 --json
"""


def add_commands(commands: Any) -> None:
    """Add `inspect`."""
    inspect = commands.add_parser(
        "inspect",
        help=_SUMMARY,
        description=f"{_SUMMARY.capitalize()}.",
        epilog=f"{_SOURCES}\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument(
        "source", metavar="SOURCE", help="the model, such as torchvision:resnet50; see below"
    )
    inspect.add_argument(
        "--input",
        metavar="SHAPE",
        action="append",
        default=[],
        help=(
            "shape of an input: 1x3x224x224, 1x16:int, mask=1x16:bool; repeat for several inputs, in order "
            "or by name"
        ),
    )
    inspect.add_argument(
        "--protect",
        metavar="PATTERN",
        action="append",
        default=[],
        help="a module or group that must not be pruned, such as 'layer4.*'; repeatable",
    )
    inspect.add_argument(
        "--streams",
        action="store_true",
        help="channels under a LayerNorm may be pruned, too, such as the width of a ViT",
    )
    inspect.add_argument(
        "--all",
        action="store_true",
        help="also show kept axes without a writer, such as the parameters of a norm",
    )
    inspect.add_argument(
        "--latency",
        action="store_true",
        help="show milliseconds and FLOPs of each layer instead of the groups",
    )
    inspect.add_argument(
        "--engine",
        choices=ENGINES,
        help=f"engine for --latency: {' or '.join(LAYER_ENGINES)} (default: eager)",
    )
    inspect.add_argument("--json", action="store_true", help="print JSON instead of a table")
    inspect.set_defaults(run=_inspect)


def _inspect(arguments: argparse.Namespace) -> None:
    if arguments.engine is not None and not arguments.latency:
        raise SettingError("--engine is for --latency. Add it, or omit --engine.")
    if arguments.latency:
        _show_latency(arguments)
        return
    progress = Console(stderr=True)
    # As Text: rich would take [brackets] in a name for its own markup.
    with progress.status(Text(f"building {in_one_line(arguments.source, 200)}")) as status:
        source = build(arguments.source, arguments.input)
        status.update(Text(f"inspecting {in_one_line(arguments.source, 200)}"))
        partition = trainonce.inspect(
            source.model, source.example, protect=arguments.protect, streams=arguments.streams
        )
    if arguments.json:
        sys.stdout.write(as_json(partition) + "\n")
    else:
        title = f"{source.name}  (input {describe(source.example)})"
        show(as_table(partition, title=title, everything=arguments.all))


def _show_latency(arguments: argparse.Namespace) -> None:
    if arguments.protect or arguments.all:
        raise SettingError("--latency shows layers, not groups. Omit --protect and --all.")
    engine = arguments.engine or LAYER_ENGINES[0]
    # As Text: rich would take [brackets] in a name for its own markup.
    with Console(stderr=True).status(Text(f"measuring {in_one_line(arguments.source, 200)}")):
        source = build(arguments.source, arguments.input)
        rows = time_layers(source.model, source.example, engine=engine)
    threads = torch.get_num_threads()
    if arguments.json:
        sys.stdout.write(as_layer_json(rows, model=source.name, engine=engine, threads=threads) + "\n")
        return
    conditions = (
        f"{engine} with {counted(threads, 'thread')} on the CPU; medians. Timing each layer adds overhead."
    )
    title = f"{source.name}  (input {describe(source.example)})"
    show(as_layer_table(rows, title=title, conditions=conditions))
