"""Command-line options that several benchmarks have; each adds one to a parser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.sheets.sheet import RESULTS

Parser = argparse.ArgumentParser


def add_number(
    parser: Parser, option: str, default: float, words: str = "", *, metavar: str | None = "N"
) -> None:
    """A number of the default's type; the help says the default."""
    kind, shown = type(default), f"(default: {default:g})"
    parser.add_argument(
        option, type=kind, default=default, metavar=metavar, help=f"{words} {shown}" if words else shown
    )


def add_several(parser: Parser, option: str, words: str, **settings: Any) -> None:
    """An option that may be given again; none given is an empty list."""
    default = f" (default: {settings.pop('shown')})" if "shown" in settings else ""
    parser.add_argument(
        option, action="append", default=[], help=f"{words}; may be given again{default}", **settings
    )


def add_data(parser: Parser) -> None:
    words = "a folder of images, train/CLASS/ and test/CLASS/ inside (default: digits)"
    parser.add_argument("--data", metavar="PATH", help=words)


def add_seed(parser: Parser) -> None:
    add_number(parser, "--seed", 0, metavar=None)


def add_hesso_python(parser: Parser) -> None:
    words = "python with only_train_once (default: that of `make hesso`)"
    parser.add_argument("--hesso-python", type=Path, metavar="FILE", help=words)


def add_out(parser: Parser, name: str) -> None:
    """Where the sheet goes; every benchmark has this option."""
    words = f"the sheet (default: benchmarks/results/{name}.md)"
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.md", metavar="FILE", help=words)
