"""Writes docs/reference.md and docs/settings.md from signatures, docstrings and flags.

`python -m docs.making.reference` writes both; with `--check` it writes nothing and ends with 1 if either
would change.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

import trainonce
from docs.making.commands import command_lines, commands, settings_page
from docs.making.docstrings import field_words, first_sentence, markdown, signature

DOCS = Path(__file__).parents[1]
HEAD = """\
# Reference

Every public name with its types, and every command with its flags. This page is generated from signatures and
docstrings: `python -m docs.making.reference` writes it, and a test fails when it is out of date. The settings
of `trainonce train` and `trainonce.Settings`, with their ranges, are in [settings.md](settings.md).

An `Example` is what the model is called with: a tensor, a tuple of inputs, or a dict of keyword inputs.
"""
ERRORS = """\
All are in `trainonce.errors`; those that you are likely to catch are also in `trainonce`. Each message is one
line that says what is wrong and what to do.
"""
EXIT_CODES = """\
Exit codes: 0 done, 2 bad input (one line on stderr says what), 75 interrupted and resumable, 130 stopped by
Ctrl-C, 141 the program that reads the output has closed it. `trainonce COMMAND --help` shows the same flags.
"""


def public(module: ModuleType) -> dict[str, Any]:
    """The names that a module offers: its `__all__`, else what it defines itself."""
    if (names := getattr(module, "__all__", None)) is not None:
        return {name: getattr(module, name) for name in names}
    return {
        name: thing
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    }


def reference_page() -> str:
    """All of docs/reference.md."""
    top = {name: thing for name, thing in public(trainonce).items() if not inspect.ismodule(thing)}
    failures = {
        name for name, thing in top.items() if inspect.isclass(thing) and issubclass(thing, Exception)
    }
    functions = {name: thing for name, thing in top.items() if inspect.isfunction(thing)}
    classes = {name: top[name] for name in top if name not in functions.keys() | failures}
    lines = [HEAD]
    lines += _chapter("Functions", "trainonce", functions)
    lines += _chapter("Classes", "trainonce", classes)
    lines += _chapter("Policies", "trainonce.policies", public(trainonce.policies))
    lines += _chapter("Loggers", "trainonce.loggers", public(trainonce.loggers))
    lines += _chapter("Cost", "trainonce.cost", public(trainonce.cost))
    lines += ["## Errors and warnings", "", ERRORS, *_failures({name: top[name] for name in failures})]
    lines += ["## Commands", "", EXIT_CODES]
    for name, parser in commands().items():
        lines += command_lines(name, parser)
    return "\n".join(lines).rstrip() + "\n"


def _chapter(title: str, path: str, things: dict[str, Any]) -> list[str]:
    lines = [f"## {title}", ""]
    for name, thing in sorted(things.items(), key=lambda item: item[0].lower()):
        lines += [f"### {path}.{name}", ""]
        lines += _class_lines(name, thing) if inspect.isclass(thing) else _function_lines(name, thing)
    return lines


def _function_lines(name: str, thing: Any, *, is_bound: bool = False) -> list[str]:
    return ["```py", signature(name, thing, is_bound=is_bound), "```", "", markdown(thing), ""]


def _class_lines(name: str, thing: type) -> list[str]:
    if issubclass(thing, enum.Enum):
        values = ", ".join(f"`{member.value}`" for member in thing)
        return [markdown(thing), "", f"Values: {values}.", ""]
    lines = [] if thing is trainonce.Settings else ["```py", signature(name, thing), "```", ""]
    lines += [markdown(thing), ""]
    if thing is trainonce.Settings:
        lines += ["Fields: [settings.md](settings.md).", ""]
    elif fields := field_words(thing):
        kinds = (
            {field.name: str(field.type) for field in dataclasses.fields(thing)} if _is_data(thing) else {}
        )
        lines += ["| field | type | |", "|---|---|---|"]
        lines += [f"| `{field}` | {_code(kinds.get(field, ''))} | {text} |" for field, text in fields.items()]
        lines.append("")
    for member, inner, is_bound in _members(thing):
        lines += [f"#### {name}.{member}", ""]
        if isinstance(inner, property):
            lines += _property_lines(member, inner)
        else:
            lines += _function_lines(member, inner, is_bound=is_bound)
    return lines


def _property_lines(name: str, thing: property) -> list[str]:
    annotation = inspect.signature(thing.fget).return_annotation if thing.fget else ""
    words = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return ["```py", f"{name}: {words}", "```", "", markdown(thing), ""]


def _members(owner: type) -> Iterator[tuple[str, Any, bool]]:
    """Methods and properties that a class documents itself: name, function or property, has it a self.

    Policies share the methods of Policy, networks those of torch.
    """
    if owner is not trainonce.policies.Policy and issubclass(owner, trainonce.policies.Policy | nn.Module):
        return
    for name, thing in vars(owner).items():
        inner = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        if name.startswith("_") or not (inspect.isfunction(inner) or isinstance(inner, property)):
            continue
        if inspect.getdoc(inner):
            yield name, inner, not isinstance(thing, staticmethod)


def _failures(top: dict[str, type]) -> list[str]:
    everything = public(trainonce.errors) | top
    lines = ["| name | is a | |", "|---|---|---|"]
    for name, thing in sorted(everything.items()):
        if inspect.isclass(thing):
            bases = ", ".join(f"`{base.__name__}`" for base in thing.__bases__)
            lines.append(f"| `{name}` | {bases} | {first_sentence(thing)} |")
    return [*lines, ""]


def _is_data(thing: type) -> bool:
    return dataclasses.is_dataclass(thing)


def _code(words: str) -> str:
    return f"`{words}`".replace("|", "\\|") if words else ""


PAGES = {DOCS / "reference.md": reference_page, DOCS / "settings.md": settings_page}


def stale_pages() -> list[Path]:
    """The generated pages that are not what this script writes."""
    return [
        path
        for path, write in PAGES.items()
        if not path.exists() or path.read_text(encoding="utf-8") != write()
    ]


def main() -> int:
    """Write the pages, or with --check say which are out of date."""
    parser = argparse.ArgumentParser(prog="python -m docs.making.reference", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; end with 1 if a page is out of date"
    )
    is_check = parser.parse_args().check
    stale = stale_pages()
    for path in stale:
        if is_check:
            print(f"{path.name} is out of date: run python -m docs.making.reference", file=sys.stderr)
        else:
            path.write_text(PAGES[path](), encoding="utf-8")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
