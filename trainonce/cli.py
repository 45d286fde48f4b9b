"""The command `trainonce`: takes the words of a command line, gives an exit code (0 done, 2 bad input)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

import trainonce
from trainonce.report.table import as_json, as_table
from trainonce.zoo.inputs import describe
from trainonce.zoo.sources import build

DONE = 0
BAD_INPUT = 2
INTERRUPTED = 130

_SOURCES = """\
where models come from:
  torchvision:resnet50              any name of torchvision.models.list_models()
  timm:convnext_tiny                any name of timm.list_models()
  transformers:LlamaForCausalLM     a class of transformers, built from a small config
  my_package.models:build           a function or class of yours, called without arguments

Models get random weights; nothing is downloaded.
"""

_EXAMPLES = """\
examples:
  trainonce inspect torchvision:resnet50
  trainonce inspect timm:swin_tiny_patch4_window7_224 --keep 'layers.0.*'
  trainonce inspect my_package.models:build --input 1x3x224x224 --json
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what the user got wrong is told in one line on stderr."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else BAD_INPUT
    try:
        return arguments.run(arguments)
    except (ValueError, ImportError, OSError) as error:
        print(f"trainonce: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("trainonce: interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="trainonce", description="Structured pruning for any PyTorch model: train once, get a small model.")
    parser.add_argument("--version", action="version", version=f"trainonce {trainonce.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    inspect = commands.add_parser(
        "inspect",
        help="show which channels of a model can be cut, what each group is worth, and what is kept and why",
        description="Show which channels of a model can be cut, what each group is worth, and what is kept and why.",
        epilog=f"{_SOURCES}\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument("source", metavar="SOURCE", help="the model, such as torchvision:resnet50; see below")
    inspect.add_argument(
        "--input",
        metavar="SHAPE",
        action="append",
        default=[],
        help="what the model is called with: 1x3x224x224, 1x16:int, mask=1x16:bool; once per input, in order or by name",
    )
    inspect.add_argument(
        "--keep",
        metavar="PATTERN",
        action="append",
        default=[],
        help="a group or module to leave whole, such as 'layer4.*'; may be given again",
    )
    inspect.add_argument("--all", action="store_true", help="show also the kept axes that nothing writes, such as a norm's own vectors")
    inspect.add_argument("--json", action="store_true", help="print JSON for other programs instead of a table")
    inspect.set_defaults(run=_inspect)
    return parser


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        self.exit(BAD_INPUT, f"{self.prog}: {message}. See {self.prog} --help.\n")


def _inspect(arguments: argparse.Namespace) -> int:
    progress = Console(stderr=True)
    with progress.status(f"building {arguments.source}") as status:
        source = build(arguments.source, arguments.input)
        status.update(f"inspecting {arguments.source}")
        partition = trainonce.inspect(source.model, source.example, keep=arguments.keep)
    if arguments.json:
        sys.stdout.write(as_json(partition) + "\n")
    else:
        title = f"{source.name}  (input {describe(source.example)})"
        Console().print(as_table(partition, title=title, everything=arguments.all))
    return DONE
