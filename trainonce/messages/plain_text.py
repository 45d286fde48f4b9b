"""Names, paths, values and errors as one line without control characters."""

from __future__ import annotations

import reprlib
import unicodedata

LONGEST_MESSAGE = 900
LONGEST_VALUE = 120
"""Characters of a value from a file in a message."""

LONGEST_PATH = 300
LARGEST_WHOLE = 2**64
"""No setting is a larger integer."""

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * LONGEST_VALUE
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = _REPR.maxset = 16
_JOINERS = "\u200c\u200d"
"""Zero-width joiners, which some scripts need between letters; harmless in a terminal."""


def in_one_line(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """The text as one line of at most `longest` characters, with terminal control characters escaped."""
    # Truncate first: a name from an untrusted file may be as long as the file.
    line = printable(" ".join(str(text)[: 4 * longest].split()))
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def printable(text: str) -> str:
    """The text with terminal control characters escaped and spaces kept."""
    return "".join(_shown(letter) for letter in text)


def reason_of(error: BaseException, longest: int = 160) -> str:
    """An error's message in one line, or its class name if it has none."""
    return in_one_line(error, longest) or type(error).__name__


def kind_and_reason(error: BaseException, longest: int = 160) -> str:
    """The error's class and what it says, such as `ValueError: no such file`, in one line."""
    kind, words = type(error).__name__, in_one_line(error, longest)
    return f"{kind}: {words}" if words else kind


def shown(value: object, *, most: int = LONGEST_VALUE) -> str:
    """A value for a message: strings as they are, errors by their message, anything else as its repr."""
    if isinstance(value, BaseException):
        return reason_of(value, most)
    return in_one_line(value, most) if isinstance(value, str) else quoted(value, most=most)


def quoted(value: object, *, most: int = LONGEST_VALUE) -> str:
    """A value's repr, truncated however long or deep it is."""
    try:
        text = _REPR.repr(value)
    except (RecursionError, ValueError):
        # Python raises an error for the repr of very large integers.
        text = f"<{type(value).__name__}>"
    return in_one_line(text, most)


def shorten(value: object) -> str:
    """A setting's repr in one short line."""
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        return "a very large integer"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def shown_path(path: object) -> str:
    """A path for a message; of a long one the end, which says more."""
    text = str(path)
    return in_one_line(
        text if len(text) <= LONGEST_PATH else f"...{text[3 - LONGEST_PATH :]}", 6 * LONGEST_PATH
    )


def steers(text: str) -> bool:
    """Whether a text has characters that move the cursor, change colors or reverse the writing direction."""
    return any(letter != _shown(letter) for letter in text if unicodedata.category(letter) != "Cs")


def _shown(letter: str) -> str:
    # Cc: control characters, Cf: writing direction and other invisible ones, Zl and Zp: Unicode line ends,
    # Cs: undecodable bytes of a file name, Cn and Co: characters that no font has.
    if unicodedata.category(letter) not in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") or letter in _JOINERS:
        return letter
    return letter.encode("unicode_escape").decode("ascii")
