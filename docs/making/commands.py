"""Every command and its flags as Markdown, and every setting of `trainonce train`."""

from __future__ import annotations

import argparse

from trainonce.cli import command, flags
from trainonce.recipes.run import Run
from trainonce.training.limits import defaults_of, limits_of

SETTINGS_HEAD = """\
# Settings

Every setting of a run, as a flag of `trainonce train`. In `config.yaml` and in `trainonce.Settings` the name
has `_` where the flag has `-`. A flag that is true or false also has a `--no-` form. What is not a setting
(`--out`, `--resume`, ...) is in the [reference](reference.md#trainonce-train).

This page is generated: `python -m docs.making.reference` writes it.
"""


def commands() -> dict[str, argparse.ArgumentParser]:
    """The subcommands, in the order in which --help lists them."""
    (found,) = [
        action for action in command._parser()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(found.choices)


def command_lines(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """One command: what it does, a table of its flags, and what --help says below them."""
    rows = [
        f"| `{'`, `'.join(flag_words(action))}` | {help_words(parser, action)} |"
        for action in parser._actions
        if "--help" not in action.option_strings
    ]
    lines = [f"### trainonce {name}", "", (parser.description or "").strip(), ""]
    lines += ["| argument | |", "|---|---|", *rows, ""]
    if epilog := (parser.epilog or "").strip():
        lines += ["```text", *(line.rstrip() for line in epilog.splitlines()), "```", ""]
    return lines


def flag_words(action: argparse.Action) -> list[str]:
    """How an argument is written: its flags, longest last, or its place holder."""
    names = [word for word in action.option_strings if not word.startswith("--no-")]
    if not names:
        return [str(action.metavar or action.dest)]
    names.sort(key=len)
    takes_value = action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction)
    if takes_value and isinstance(action.metavar, str):
        names[-1] = f"{names[-1]} {action.metavar}"
    return names


def help_words(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help text on one line, with what argparse fills in."""
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return " ".join(text.split()).replace("|", "\\|")


def settings_page() -> str:
    """All of docs/settings.md."""
    limits, defaults = limits_of(Run), defaults_of(Run)
    lines = [SETTINGS_HEAD]
    for title, names in flags.SECTIONS.items():
        lines += [f"## {title.capitalize()}", "| flag | what | allowed | default |", "|---|---|---|---|"]
        for name in names.split():
            one = limits[name]
            flag = f"--{name.replace('_', '-')}"
            lines.append(f"| `{flag}` | {one.help} | {one.describe()} | {_shown(defaults[name])} |")
        lines.append("")
    return "\n".join(lines)


def _shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)
