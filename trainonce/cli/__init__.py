"""The `trainonce` command."""

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
    """Run one command and return its exit code; Ctrl-C ends it cleanly even while torch is loading."""
    try:
        # Imported here: it takes seconds, in which the user may press Ctrl-C.
        return _written(importlib.import_module("trainonce.cli.command").run_command(argv))
    except KeyboardInterrupt:
        print("trainonce: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _close_stdout()
        return PIPE_CLOSED


def _written(code: int) -> int:
    """The exit code, if everything that was printed could be written."""
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
    """Redirect stdout to nowhere; Python would complain at exit otherwise."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


__all__ = ["main"]
