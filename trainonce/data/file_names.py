"""File names: normalized, shown in messages, and hashed for splits."""

from __future__ import annotations

import hashlib
import unicodedata

from trainonce.messages.plain_text import printable

MAX_SHOWN = 160


def spelled(name: str) -> str:
    """The name in Unicode NFC; macOS stores names decomposed, so copies of a file may differ."""
    return unicodedata.normalize("NFC", name)


def shown(name: object) -> str:
    """The name on one line, with unprintable characters escaped and its middle cut out if it is long."""
    text = printable(str(name))
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN // 2]}...{text[-MAX_SHOWN // 2 + 3 :]}"


def number_of(name: str, seed: int = 0) -> int:
    """A hash from 0 to 2^64 - 1 of the name and the seed, the same on every machine."""
    # Names that are not UTF-8 arrive with lone surrogates, which strict UTF-8 can't encode.
    content = f"{seed}\0{spelled(name)}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big")
