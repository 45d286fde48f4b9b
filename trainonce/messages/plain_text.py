"""Text as a message may show it: takes names, paths and errors, gives one line without control characters."""

from __future__ import annotations

import reprlib
import unicodedata

LONGEST_MESSAGE = 900
LONGEST_VALUE = 120
"""Characters that a value from a file may take in a message."""

LONGEST_PATH = 300
LARGEST_WHOLE = 2**64
"""Larger integers are nobody's setting."""

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * LONGEST_VALUE
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = _REPR.maxset = 16
_JOINERS = "\u200c\u200d"
"""Letters of some scripts need these two between them; they move nothing."""


def in_one_line(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """The text in one line of at most `longest` characters; what would steer a terminal is written out."""
    # Cut first: a name from a stranger's file may be as long as the file.
    line = printable(" ".join(str(text)[: 4 * longest].split()))
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def printable(text: str) -> str:
    """The text with its spaces, where what would steer a terminal is written out."""
    return "".join(_shown(letter) for letter in text)


def reason_of(error: BaseException, longest: int = 160) -> str:
    """What an error says, in one line; its class if it says nothing."""
    return in_one_line(error, longest) or type(error).__name__


def kind_and_reason(error: BaseException, longest: int = 160) -> str:
    """The error's class and what it says, such as `ValueError: no such file`, in one line."""
    kind, words = type(error).__name__, in_one_line(error, longest)
    return f"{kind}: {words}" if words else kind


def shown(value: object, *, most: int = LONGEST_VALUE) -> str:
    """A value as a message shows it.

    A text as it is, an error by its words, anything else as Python writes it.
    """
    if isinstance(value, BaseException):
        return reason_of(value, most)
    return in_one_line(value, most) if isinstance(value, str) else quoted(value, most=most)


def quoted(value: object, *, most: int = LONGEST_VALUE) -> str:
    """A value as Python writes it, however long or deep it is."""
    try:
        text = _REPR.repr(value)
    except (RecursionError, ValueError):
        # Python refuses to write out very large integers.
        text = f"<{type(value).__name__}>"
    return in_one_line(text, most)


def shorten(value: object) -> str:
    """A setting's value as an error shows it: in one line, and not longer than it helps."""
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        return "a number of many digits"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def shown_path(path: object) -> str:
    """A path as a message shows it; of a long one the end, which tells more."""
    text = str(path)
    return in_one_line(
        text if len(text) <= LONGEST_PATH else f"...{text[3 - LONGEST_PATH :]}", 6 * LONGEST_PATH
    )


def steers(text: str) -> bool:
    """Whether a text holds characters that move a cursor, change a color or turn the direction of writing."""
    return any(letter != _shown(letter) for letter in text if unicodedata.category(letter) != "Cs")


def _shown(letter: str) -> str:
    # Cc: control characters, Cf: direction of writing and other invisible ones, Zl and Zp: line ends of
    # Unicode,
    # Cs: bytes of a file name that are no text, Cn and Co: what no font has.
    if unicodedata.category(letter) not in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") or letter in _JOINERS:
        return letter
    return letter.encode("unicode_escape").decode("ascii")
