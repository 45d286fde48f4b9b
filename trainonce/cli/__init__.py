"""The command `trainonce`: takes the words of a command line, gives an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

BAD_OUTPUT = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
"""As if SIGPIPE had ended the process, which is what a shell expects."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; also while torch is still being loaded, Ctrl-C ends it with one word."""
    try:
        # Loaded here, because loading takes seconds in which the user may change their mind.
        return _written(importlib.import_module("trainonce.cli.command").run_command(argv))
    except KeyboardInterrupt:
        print("trainonce: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _close_stdout()
        return PIPE_CLOSED


def _written(code: int) -> int:
    """The code, if all that was printed has arrived."""
    try:
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except OSError as error:
        _close_stdout()
        print(f"trainonce: can't write to stdout ({error.strerror})", file=sys.stderr)
        return BAD_OUTPUT


def _close_stdout() -> None:
    """Nothing more can be written there; without this, Python would complain about it at its end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


__all__ = ["main"]
