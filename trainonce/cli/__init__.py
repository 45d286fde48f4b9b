"""The command `trainonce`: takes the words of a command line, gives an exit code."""

from trainonce.cli.command import main

__all__ = ["main"]
