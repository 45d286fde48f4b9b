"""The generated pages are what their script writes, and leave no public name, error or flag out."""

import argparse
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import trainonce
from docs.making import docstrings, reference
from trainonce.cli import command

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference.md").read_text(encoding="utf-8")
MODULES = {
    "trainonce": trainonce,
    "trainonce.policies": trainonce.policies,
    "trainonce.loggers": trainonce.loggers,
}


def public_names() -> list[str]:
    found = []
    for path, module in MODULES.items():
        for name in module.__all__:
            thing = getattr(module, name)
            is_error = inspect.isclass(thing) and issubclass(thing, Exception)
            if not inspect.ismodule(thing) and not is_error:
                found.append(f"{path}.{name}")
    functions = inspect.getmembers(trainonce.cost, inspect.isfunction)
    here = [name for name, thing in functions if thing.__module__ == trainonce.cost.__name__]
    return found + [f"trainonce.cost.{name}" for name in here if not name.startswith("_")]


def errors() -> list[str]:
    classes = inspect.getmembers(trainonce.errors, inspect.isclass)
    return [name for name, thing in classes if issubclass(thing, Exception)]


def flags() -> list[tuple[str, str]]:
    parsers = [
        action for action in command._parser()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    found = []
    for name, parser in parsers[0].choices.items():
        for action in parser._actions:
            shown = [flag for flag in action.option_strings if not flag.startswith("--no-")]
            found += [(name, flag) for flag in shown if flag not in ("-h", "--help")]
    return found


def part(heading: str) -> str:
    """What stands under a heading, down to the next one as high."""
    marks = heading.split(" ")[0]
    _, _, rest = PAGE.partition(f"\n{heading}\n")
    return re.split(rf"^#{{2,{len(marks)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("path", list(reference.PAGES), ids=lambda path: path.name)
def test_the_page_is_what_the_script_writes(path: Path):
    assert path.read_text(encoding="utf-8") == reference.PAGES[path](), (
        f"{path.name} is out of date: run python -m docs.making.reference"
    )


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_its_docstring_and_signature(name: str):
    thing: Any = trainonce
    for step in name.split(".")[1:]:
        thing = getattr(thing, step)
    text = part(f"### {name}")
    assert (inspect.getdoc(thing) or "").splitlines()[0] in text
    if inspect.isfunction(thing):
        missing = [
            word for word in inspect.signature(thing).parameters if not re.search(rf"\b{word}\b", text)
        ]
        assert missing == []


@pytest.mark.parametrize("name", errors())
def test_every_error_is_listed(name: str):
    assert f"\n| `{name}` | " in part("## Errors and warnings")


@pytest.mark.parametrize(("name", "flag"), flags(), ids=lambda word: word)
def test_every_flag_is_listed(name: str, flag: str):
    assert re.search(rf"`{flag}[ `]", part(f"### trainonce {name}"))


def test_a_page_that_was_edited_or_is_missing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(reference, "PAGES", {page: lambda: "as written\n"})
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert reference.main() == 1
    assert not page.exists()
    monkeypatch.setattr("sys.argv", ["reference"])
    assert reference.main() == 0
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert reference.main() == 0
    page.write_text("edited\n")
    assert reference.main() == 1


def test_sections_of_a_docstring_become_lists():
    def add(first: int, *, second: "int | None" = None) -> int:
        """The sum.

        Args:
            first: one number,
                which may be long.
            second: another.

        Raises:
            ValueError: for none.

        More words.
        """
        return first + (second or 0)

    text = docstrings.markdown(add)
    assert "**Args**\n\n- `first`: one number,\n" in text
    assert "- `second`: another.\n\n**Raises**\n\n- `ValueError`: for none.\n\nMore words." in text
    assert docstrings.signature("add", add) == "add(first: int, *, second: int | None = None) -> int"
