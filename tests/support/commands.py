"""The command: flags for runs that take seconds, and words that it refuses."""

from __future__ import annotations

import pytest

from trainonce.cli import main

FLAGS = ["--epochs", "3", "--batch-size", "128", "--img-size", "8", "--save-epochs", "1", "--quiet"]


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which the command ends."""
    capsys.readouterr()
    assert main(words) == 2, words
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trainonce")
    assert err[:-1].isprintable(), err
    assert len(err) < 2100
    return err
