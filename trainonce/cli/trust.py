"""Trust: code that a file names is imported only if the user allows it."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainonce.errors import SettingError
from trainonce.messages.plain_text import in_one_line
from trainonce.zoo.names import names_code, needs_trust


def add_trust_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--trust-code`."""
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help=(
            "allow config.yaml or --config to name the model as code (module.path:function), which is "
            "imported and run"
        ),
    )


def check_trust(source: object, *, file: Path, is_trusted: bool) -> None:
    """Raise SettingError if a file names its model as code and the user has not allowed that.

    Nothing is imported. Names of torchvision or timm models are looked up in a list.
    """
    if is_trusted or not isinstance(source, str) or not needs_trust(source):
        return
    shown = in_one_line(source, 120)
    what = "is Python code that this command would import and run"
    if not names_code(source):
        what = "this command would download from the Hugging Face hub"
    raise SettingError(
        f"{file} names the model {shown}, which {what}. If you trust it, add --trust-code or --model {shown}."
    )
