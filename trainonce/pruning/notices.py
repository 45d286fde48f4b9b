"""Warnings that point at the user's own line of code, each given once per run."""

from __future__ import annotations

import sys
import warnings

_INSIDE = ("trainonce.pruning.", "trainonce.integrations.", "contextlib")
"""Modules whose frames are not the user's; a context manager of ours runs in one of contextlib."""


def warn_user(words: str | Warning) -> None:
    """Warn, as if from the code that called into this package; a RuntimeWarning unless it is a Warning."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(words, RuntimeWarning if isinstance(words, str) else None, stacklevel=level)


class Notices:
    """Remembers what a run has warned about."""

    def __init__(self) -> None:
        self._subjects: set[str] = set()

    def once(self, subject: str, words: str) -> None:
        """Warn, unless this subject has come up before."""
        if subject not in self._subjects:
            self._subjects.add(subject)
            warn_user(words)

    def __contains__(self, subject: str) -> bool:
        return subject in self._subjects
