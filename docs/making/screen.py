"""What a terminal shows after a program's output: takes bytes with escape codes, gives lines."""

from __future__ import annotations

import re

_CODES = re.compile(r"\x1b\[(\?25[lh]|[0-9;]*[A-Za-z])|\r\n|\n|\r")


def shown_lines(output: str) -> list[str]:
    """The lines on the screen at the end; colors stay in them.

    Understands what rich's live view writes: cursor up (`A`), erase the line (`K`), carriage return.
    """
    lines, row, end = [""], 0, 0
    for code in _CODES.finditer(output):
        lines[row] += output[end : code.start()]
        end = code.end()
        word = code.group(0)
        if word.endswith("\n"):
            row += 1
            if row == len(lines):
                lines.append("")
        elif word.endswith("A") and word.startswith("\x1b"):
            row = max(0, row - int(word[2:-1] or 1))
        elif word.endswith("K"):
            lines[row] = ""
        elif word.endswith("m"):
            lines[row] += word
    lines[row] += output[end:]
    return lines
