"""Names of files: takes a name as the disk has it, gives it in one spelling, as a message, as a number."""

from __future__ import annotations

import hashlib
import unicodedata

from trainonce.messages.plain_text import printable

MAX_SHOWN = 160


def spelled(name: str) -> str:
    """The name in composed form: a Mac takes accents apart, so that a copy of a file has another spelling."""
    return unicodedata.normalize("NFC", name)


def shown(name: object) -> str:
    """A name for a message: in one line, with unprintable characters escaped, and no longer than it helps."""
    text = printable(str(name))
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN // 2]}...{text[-MAX_SHOWN // 2 + 3 :]}"


def number_of(name: str, seed: int = 0) -> int:
    """A number from 0 to 2^64 - 1 that depends on the name and the seed alone, the same on every machine."""
    # Names that are no UTF-8 arrive with lone surrogates, which plain UTF-8 refuses.
    content = f"{seed}\0{spelled(name)}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big")
