"""The command and its subcommands: takes words, gives an exit code (0 done, 2 bad input, 75 interrupted and able to go on)."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

import trainonce
from trainonce.cli import deploying, evaluating, inspecting, reporting, train
from trainonce.training.signals import Interrupted

DONE = 0
BAD_INPUT = 2
RESUMABLE = 75
"""EX_TEMPFAIL: whoever started the run may start it again."""
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what the user got wrong is told in one line on stderr."""
    logging.captureWarnings(True)
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else BAD_INPUT
    try:
        return arguments.run(arguments) or DONE
    except Interrupted as stop:
        _tell(str(stop))
        return RESUMABLE
    except (ValueError, ImportError, OSError) as error:
        _tell(" ".join(str(error).split()) or type(error).__name__)
        return BAD_INPUT
    except KeyboardInterrupt:
        _tell("interrupted")
        return INTERRUPTED
    finally:
        logging.captureWarnings(False)


def _tell(line: str) -> None:
    rank = os.environ.get("RANK", "0")
    who = "trainonce" if rank == "0" else f"trainonce (process {rank})"
    print(f"{who}: {line}", file=sys.stderr)


class OneLineParser(argparse.ArgumentParser):
    """Says in one line what it does not understand."""

    def error(self, message: str) -> None:
        """End with exit code 2."""
        self.exit(BAD_INPUT, f"{self.prog}: {' '.join(message.split())}. See {self.prog} --help.\n")


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="trainonce", description="Structured pruning for any PyTorch model: train once, get a small model.")
    parser.add_argument("--version", action="version", version=f"trainonce {trainonce.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for part in (inspecting, train, evaluating, reporting, deploying):
        part.add_commands(commands)
    return parser
