"""Docstrings and signatures as Markdown."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from typing import Any

SECTION = re.compile(r"^(Args|Arguments|Attributes|Returns|Yields|Raises|Example|Examples|Note|Shapes):$")
WIDTH = 96


def markdown(thing: Any) -> str:
    """The whole docstring; Google-style sections become lists."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    written: list[str] = []
    number = 0
    while number < len(lines):
        if (found := SECTION.match(lines[number])) is None:
            written.append(lines[number])
            number += 1
            continue
        end = number + 1
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" ")):
            end += 1
        written += ["", f"**{found.group(1)}**", "", *_section(found.group(1), lines[number + 1 : end]), ""]
        number = end
    return re.sub(r"\n{3,}", "\n\n", "\n".join(written)).strip()


def _section(title: str, lines: list[str]) -> list[str]:
    body = textwrap.dedent("\n".join(lines)).strip().splitlines()
    if title in ("Args", "Arguments", "Attributes", "Raises"):
        return [_list_item(line) for line in body]
    return body


def _list_item(line: str) -> str:
    found = re.match(r"(\*{0,2}\w+)(?: \([^)]*\))?: (.*)", line)
    return f"- `{found.group(1)}`: {found.group(2)}" if found else f"  {line.strip()}".rstrip()


def first_sentence(thing: Any) -> str:
    """What stands before the docstring's first full stop, on one line."""
    words = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    found = re.match(r"(.*?)\.(?: |$)", words)
    return found.group(1) if found else words


def signature(name: str, thing: Any, *, is_bound: bool = False) -> str:
    """The call with its types, one argument a line where it is long."""
    shape = inspect.signature(thing)
    parameters = list(shape.parameters.values())[1 if is_bound else 0 :]
    words = _words(parameters)
    result = _annotation(shape.return_annotation)
    end = f" -> {result}" if result and not inspect.isclass(thing) else ""
    line = f"{name}({', '.join(words)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){end}"])


def _words(parameters: list[inspect.Parameter]) -> list[str]:
    words, is_keyword_only = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            if not any(other.kind is other.VAR_POSITIONAL for other in parameters):
                words.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        annotation = _annotation(parameter.annotation)
        word = f"{stars}{parameter.name}" + (f": {annotation}" if annotation else "")
        if parameter.default is not parameter.empty:
            word += f" = {_default(parameter.default)}" if annotation else f"={_default(parameter.default)}"
        words.append(word)
    return words


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    words = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return words.strip("'\"")


def _default(value: Any) -> str:
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__name__
    words = repr(value)
    # An object whose repr is its address, or a dataclass field that is made when it is needed.
    return "..." if words.startswith("<") else words


def field_words(thing: type) -> dict[str, str]:
    """The text under each field of a class, by the field's name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, below in itertools.pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return {name: words for name, words in found.items() if not name.startswith("_")}
