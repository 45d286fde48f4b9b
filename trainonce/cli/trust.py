"""Whose code runs: takes the model that a file names, refuses to import it unless the user trusts it."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainonce.errors import SettingError
from trainonce.messages.plain_text import in_one_line
from trainonce.zoo.names import names_code


def add_trust_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--trust-code`."""
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help=(
            "import and run the model's code (module.path:function) that a run's config.yaml or --config "
            "names"
        ),
    )


def check_trust(source: object, *, file: Path, is_trusted: bool) -> None:
    """Raise SettingError if a file names code, for a command line that doesn't.

    Nothing has been imported then.

    The names of libraries' models are no code: they are looked up in the library's own list.
    """
    if is_trusted or not isinstance(source, str) or not names_code(source):
        return
    shown = in_one_line(source, 120)
    raise SettingError(
        f"{file} names the model {shown}, which is Python code that this command would import and run. "
        f"If you trust it, add --trust-code or --model {shown}."
    )
