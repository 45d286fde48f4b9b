"""Random damage to a file of settings: whatever it becomes, it is read as settings or refused in one line."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from trainonce.recipes.run import Run, check_run, run_from
from trainonce.runs.config_file import read_yaml, to_yaml
from trainonce.training.settings import as_plain

NUM_CASES = 400
GOOD = to_yaml(
    as_plain(Run(keep_flops=0.5, protect=("stem.*", "head"), decay_epochs=(2.0, 3.5), sched="step"))
)
TOKENS = [
    *(
        "&a ",
        "*a",
        "!!python/object:os.system ",
        "!!binary ",
        "!!set ",
        "!!timestamp ",
        "<<: ",
        "? ",
        "- ",
        "---\n",
        "...\n",
    ),
    *(
        "[",
        "]",
        "{",
        "}",
        ": ",
        "#",
        "'",
        '"',
        "|",
        ">",
        "%YAML 1.1\n",
        "~",
        "\t",
        "\r\n",
        "\\",
        "\x1b[31m",
        "\u202e",
        "\x00",
    ),
    *(
        "null",
        "true",
        "yes",
        ".nan",
        ".inf",
        "-.inf",
        "1e999",
        "0x7f",
        "0o17",
        "1:30:00",
        "2001-01-01",
        "-0",
        "9" * 400,
        "1_0",
    ),
    *(
        "keep_flops",
        "model",
        "data",
        "lr",
        "timm:hf-hub:a/b",
        "os:system",
        "folder:/etc",
        "../..",
        "cifar:resnet20",
        "x" * 5000,
    ),
]


def change_bytes(text: str, rng: random.Random) -> str:
    content = bytearray(text.encode())
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return content.decode("latin-1")


def cut_short(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def insert_tokens(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(text) + 1)
        text = text[:place] + rng.choice(TOKENS) + text[place:]
    return text


def replace_values(text: str, rng: random.Random) -> str:
    lines = text.splitlines()
    for _ in range(rng.randint(1, 4)):
        index = rng.randrange(len(lines))
        lines[index] = (
            f"{lines[index].partition(':')[0]}: {''.join(rng.choices(TOKENS, k=rng.randint(1, 3)))}"
        )
    return "\n".join(lines)


def rename(text: str, rng: random.Random) -> str:
    lines = text.splitlines()
    index = rng.randrange(len(lines))
    lines[index] = f"{rng.choice(TOKENS)}:{lines[index].partition(':')[2]}"
    return "\n".join(lines)


def shuffle_lines(text: str, rng: random.Random) -> str:
    lines = rng.choices(text.splitlines(), k=rng.randint(1, 60))
    return "\n".join(" " * rng.choice([0, 0, 0, 1, 2]) + line for line in lines)


def nest(text: str, rng: random.Random) -> str:
    depth = rng.choice([3, 30, 3000])
    opening, closing = rng.choice([("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")])
    return f"{text}\nkeep: {opening * depth}{closing * rng.choice([0, depth])}"


MUTATIONS: list[Callable[[str, random.Random], str]] = [
    change_bytes,
    cut_short,
    insert_tokens,
    replace_values,
    rename,
    shuffle_lines,
    nest,
]


def damaged(seed: int) -> tuple[str, str]:
    """A damaged file and whether its bytes are text."""
    rng = random.Random(seed)
    text = GOOD
    for _ in range(rng.randint(1, 3)):
        text = rng.choice(MUTATIONS)(text, rng) or "\n"
    return text, rng.choice(["utf-8", "utf-8", "utf-8", "latin-1", "utf-16"])


@pytest.mark.parametrize("start", range(0, NUM_CASES, 100))
def test_a_damaged_file_is_read_or_refused_in_one_line(start: int, tmp_path: Path):
    file = tmp_path / "config.yaml"
    refused = 0
    for seed in range(start, start + 100):
        text, encoding = damaged(seed)
        file.write_bytes(text.encode(encoding, errors="replace"))
        try:
            check_run(run_from(read_yaml(file), Run()))
        except (ValueError, ImportError) as error:
            message = str(error)
            refused += 1
            assert message, seed
            assert message.isprintable(), (seed, message)
            assert len(message) < 1000, (seed, message)
    assert 50 < refused <= 100


def test_the_undamaged_file_is_read(tmp_path: Path):
    (tmp_path / "config.yaml").write_text(GOOD)
    check_run(run_from(read_yaml(tmp_path / "config.yaml"), Run()))
