"""The reference lists every public name with the first sentence of its docstring, and every flag of every command."""

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import trainonce
from trainonce.cli import command

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")
SETTINGS = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")


def first_sentence(thing: Any) -> str:
    words = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    found = re.match(r"(.*?)\.(?: |$)", words)
    return found.group(1) if found else words


def public_names() -> dict[str, Any]:
    found = {
        f"trainonce.{name}": getattr(trainonce, name)
        for name in trainonce.__all__
        if not inspect.ismodule(getattr(trainonce, name))
    }
    found |= {
        f"trainonce.policies.{name}": getattr(trainonce.policies, name) for name in trainonce.policies.__all__
    }
    found |= {
        f"trainonce.cost.{name}": thing
        for name, thing in members(trainonce.cost)
        if inspect.isfunction(thing)
    }
    return found


def members(owner: Any) -> Iterator[tuple[str, Any]]:
    """What a class or module defines itself, with a docstring."""
    for name, thing in vars(owner).items():
        inner = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        if name.startswith("_") or not (inspect.isfunction(inner) or isinstance(inner, property)):
            continue
        if not inspect.isclass(owner) and inner.__module__ != owner.__name__:
            continue
        if inspect.getdoc(inner):
            yield name, inner


def reference_rows() -> list[str]:
    rows = []
    for path, thing in public_names().items():
        rows.append(f"| `{path.removeprefix('trainonce.')}` | {first_sentence(thing)} |")
        # Policies have the methods of Policy, networks those of torch.
        is_kind_of = inspect.isclass(thing) and issubclass(
            thing, Exception | trainonce.policies.Policy | nn.Module
        )
        if inspect.isclass(thing) and (not is_kind_of or thing is trainonce.policies.Policy):
            rows += [
                f"| `{thing.__name__}.{name}` | {first_sentence(member)} |" for name, member in members(thing)
            ]
    return rows


def flag_rows(name: str) -> list[str]:
    rows = []
    for action in commands()[name]._actions:
        flags = [flag for flag in action.option_strings if not flag.startswith("--no-")] or [
            action.metavar or action.dest
        ]
        if "--help" not in flags:
            rows.append(
                f"| `{name}` | `{'`, `'.join(map(str, flags))}` | {(action.help or '').replace('%%', '%')} |"
            )
    return rows


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = [
        action for action in command._parser()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(found.choices)


@pytest.mark.parametrize("row", reference_rows(), ids=lambda row: row.split("`")[1])
def test_every_public_name_is_there_with_its_first_sentence(row: str):
    assert row in PAGE.splitlines()


def test_nothing_is_listed_that_is_not_there():
    listed = set(re.findall(r"^\| `([a-zA-Z_.]+)` \| (?!`)", PAGE, re.MULTILINE))
    assert listed == {row.split("`")[1] for row in reference_rows()}


@pytest.mark.parametrize("name", sorted(commands().keys() - {"train"}))
def test_every_flag_is_listed_with_what_it_does(name: str):
    assert set(flag_rows(name)) <= set(PAGE.splitlines())


def test_the_settings_page_names_every_flag_of_train():
    named = set(re.findall(r"--[a-z-]+|RECIPE", SETTINGS))
    flags = {row.split(" | ")[1].rpartition("`, `")[2].strip("`") for row in flag_rows("train")}
    assert flags <= named
