"""The command and its subcommands; exit codes: 0 done, 2 bad input, 75 interrupted (can be resumed)."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import trainonce
from trainonce.cli import deploying, evaluating, inspecting, reporting, train
from trainonce.engines.runtimes import is_out_of_memory
from trainonce.errors import RunInterruptedError
from trainonce.messages.plain_text import in_one_line, reason_of
from trainonce.messages.suggestions import did_you_mean
from trainonce.training.settings import RENAMED

DONE = 0
BAD_INPUT = 2
RESUMABLE = 75
"""EX_TEMPFAIL: a scheduler may start the run again."""


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input is reported in one line on stderr."""
    logging.captureWarnings(True)
    try:
        arguments = _parse(argv)
        return arguments.run(arguments) or DONE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else BAD_INPUT
    except RunInterruptedError as stop:
        _tell(str(stop))
        return RESUMABLE
    except BrokenPipeError:
        raise
    except OSError as error:
        _tell(_describe(error))
        return BAD_INPUT
    except (ValueError, ImportError) as error:
        _tell(reason_of(error, longest=2000))
        return BAD_INPUT
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _tell(f"out of memory ({reason_of(error)}). Choose a smaller batch, image size or model.")
        return BAD_INPUT
    finally:
        logging.captureWarnings(False)


def _describe(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return reason_of(error, longest=2000)
    return f"can't use {error.filename} ({error.strerror}). Check the path and its permissions."


def _tell(line: str) -> None:
    rank = os.environ.get("RANK", "0")
    who = "trainonce" if rank == "0" else f"trainonce (process {rank})"
    print(f"{who}: {in_one_line(line, 2000)}", file=sys.stderr)


class OneLineParser(argparse.ArgumentParser):
    """Reports bad input in one line; flags can't be abbreviated."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """Exit because of words that are left over; suggests the flag closest to the first of them."""
        flag = words[0].partition("=")[0]
        known = self._option_string_actions
        new_name = f"--{RENAMED.get(flag.removeprefix('--'))}"
        candidates = [new_name] if new_name in known else known
        advice = did_you_mean(flag, candidates, cutoff=0.0 if new_name in known else 0.6)
        kind = "option" if flag.startswith("-") else "argument"
        self.error(f"unrecognized {kind} {in_one_line(flag, 100)}" + (f". {advice}" if advice else ""))

    def error(self, message: str) -> None:
        """Exit with code 2."""
        line = in_one_line(message)
        end = "" if line.endswith((".", "?")) else "."
        self.exit(BAD_INPUT, f"{self.prog}: {line}{end} See {self.prog} --help.\n")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        arguments.parser.refuse_unknown(unknown)
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="trainonce",
        description="Structured pruning for any PyTorch model. Train once. Ship a small model.",
    )
    parser.add_argument("--version", action="version", version=f"trainonce {trainonce.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for part in (inspecting, train, evaluating, reporting, deploying):
        part.add_commands(commands)
    for command in commands.choices.values():
        command.set_defaults(parser=command)
    return parser
