"""A file of settings: whatever it becomes, it is read as settings or refused in one line."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from fuzzing.mutation import flipped, truncated, write_sparse
from fuzzing.registry import Attempt, Trial, refuse, target
from trainonce.errors import MissingPackageError
from trainonce.recipes.run import Run, check_run, run_from
from trainonce.runs.config_file import read_yaml, to_yaml
from trainonce.training.settings import as_plain

TOKENS = (
    *("&a ", "*a", "!!python/object:os.system ", "!!binary ", "!!set ", "!!timestamp ", "<<: ", "? ", "- "),
    *("---\n", "...\n", "[", "]", "{", "}", ": ", "#", "'", '"', "|", ">", "%YAML 1.1\n", "~", "\t", "\r\n"),
    *("\\", "\x1b[31m", "\u202e", "\x00", "null", "true", "yes", ".nan", ".inf", "-.inf", "1e999", "0x7f"),
    *("0o17", "1:30:00", "2001-01-01", "-0", "9" * 400, "1_0", "keep_flops", "model", "data", "lr"),
    *("timm:hf-hub:a/b", "os:system", "folder:/etc", "../..", "cifar:resnet20", "x" * 5000, "1:" * 5000),
)


@target("config", cases=800)
def config(place: Path) -> Trial:
    file = place / "config.yaml"
    good = to_yaml(
        as_plain(Run(keep_flops=0.5, protect=("stem.*", "head"), decay_epochs=(2.0, 3.5), sched="step"))
    )
    file.write_text(good)
    # Fuzzing a file that is refused undamaged would show nothing.
    read_settings(file)

    def trial(dice: random.Random) -> Attempt:
        text = good
        for _ in range(dice.choice((1, 1, 2, 3))):
            text = dice.choice(DAMAGES)(text, dice) or "\n"
        content = text.encode(dice.choice(("utf-8",) * 8 + ("latin-1", "utf-16")), errors="replace")
        if dice.random() < 0.2:
            content = dice.choice((flipped, truncated))(content, dice)
        file.write_bytes(content)
        if dice.random() < 0.02:
            write_sparse(file, dice.choice([2**28, 2**35]))
        return lambda: read_settings(file)

    return trial


def read_settings(file: Path) -> str:
    """What the command does with a file before it trains."""
    try:
        check_run(run_from(read_yaml(file), Run()))
    except MissingPackageError as error:
        # Nothing is wrong with the file; what is told is a line of ours all the same.
        refuse(str(error))
    return "read"


def insert_tokens(text: str, dice: random.Random) -> str:
    for _ in range(dice.randint(1, 6)):
        place = dice.randrange(len(text) + 1)
        text = text[:place] + dice.choice(TOKENS) + text[place:]
    return text


def replace_values(text: str, dice: random.Random) -> str:
    lines = text.splitlines() or [""]
    for _ in range(dice.randint(1, 4)):
        index = dice.randrange(len(lines))
        lines[index] = (
            f"{lines[index].partition(':')[0]}: {''.join(dice.choices(TOKENS, k=dice.randint(1, 3)))}"
        )
    return "\n".join(lines)


def rename(text: str, dice: random.Random) -> str:
    lines = text.splitlines() or [""]
    index = dice.randrange(len(lines))
    lines[index] = f"{dice.choice(TOKENS)}:{lines[index].partition(':')[2]}"
    return "\n".join(lines)


def leave_out(text: str, dice: random.Random) -> str:
    """Some of the settings, in another order: right again, if nothing else is wrong."""
    lines = text.splitlines()
    return "\n".join(dice.sample(lines, dice.randint(0, len(lines))))


def shuffle_lines(text: str, dice: random.Random) -> str:
    lines = dice.choices(text.splitlines() or [""], k=dice.randint(1, 60))
    return "\n".join(" " * dice.choice([0, 0, 0, 1, 2]) + line for line in lines)


def nest(text: str, dice: random.Random) -> str:
    depth = dice.choice([3, 30, 3000])
    opening, closing = dice.choice([("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", ""), ("&a [*a, ", "]")])
    return f"{text}\nprotect: {opening * depth}{closing * dice.choice([0, depth])}"


def lengthen(text: str, dice: random.Random) -> str:
    """As much of one thing as a file may hold."""
    part = dice.choice(["a, ", "[], ", "- ", "1:", "1_", "'' ", "# x\n", "? ", '"\\', "9", "&a", "!!x "])
    return f"{text}\nprotect: {dice.choice(['', '['])}{part * (90_000 // len(part))}"


DAMAGES: tuple[Callable[[str, random.Random], str], ...] = (
    *(insert_tokens, replace_values, replace_values, rename, shuffle_lines, leave_out) * 4,
    nest,
    lengthen,
)
