"""A corrupt, forged or newer saved model is refused in one line, and the model is unchanged."""

import copy
import json
import os
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from support.towers import (
    FILES,
    Reader,
    Tower,
    assert_refused,
    portrait,
    rewrite_json,
    rewrite_sums,
    small_tower,
    tower_plan,
)
from trainonce.errors import ArtifactError, ModelMismatchError
from trainonce.storage.artifact import load, reading, save
from trainonce.storage.artifact.bounds import takes_much_memory
from trainonce.surgery.slicing import apply_plan


def refusal(path: Path, into: nn.Module) -> str | None:
    """What a load says when it refuses; None if it goes through."""
    try:
        load(path, into=into)
    except ArtifactError as error:
        return str(error)
    return None


def count_refusals(path: Path, damage: Iterable[object]) -> int:
    """How often a load refuses while `damage` changes the folder step by step.

    Each time the model must be unchanged.
    """
    tower, num_refusals = Tower(), 0
    before = portrait(tower)
    for _ in damage:
        message = refusal(path, tower)
        if message is None:
            tower = Tower()
            before = portrait(tower)
        else:
            num_refusals += 1
            assert "\n" not in message
            assert portrait(tower) == before
    return num_refusals


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_refused(saved: Path, name: str):
    whole = (saved / name).read_bytes()
    lengths = range(0, len(whole), max(1, len(whole) // 300))
    assert count_refusals(saved, ((saved / name).write_bytes(whole[:length]) for length in lengths)) == len(
        lengths
    )
    (saved / name).write_bytes(whole)
    assert refusal(saved, Tower()) is None


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_refused(saved: Path, name: str):
    whole = (saved / name).read_bytes()

    def flip(position: int) -> None:
        damaged = bytearray(whole)
        damaged[position // 8] ^= 1 << position % 8
        (saved / name).write_bytes(damaged)

    positions = random.Random(0).sample(range(8 * len(whole)), 400)
    assert count_refusals(saved, (flip(position) for position in positions)) == len(positions)


def test_a_further_line_in_the_sums_is_refused(saved: Path):
    with (saved / "SHA256SUMS").open("a") as sums:
        sums.write("0" * 64 + "  other\n")
    assert_refused(saved, Tower(), names="SHA256SUMS")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved: Path, name: str):
    (saved / name).unlink()
    assert_refused(saved, Tower(), names=name)


def test_a_missing_folder_is_named(tmp_path: Path):
    assert_refused(tmp_path / "nowhere", Tower(), names="nowhere")


JUNK = (
    None,
    True,
    False,
    -1,
    0,
    1,
    3,
    2**70,
    1.5,
    "",
    "first.weight",
    "../../etc/passwd",
    "__class__",
    [],
    [[]],
    {},
    [0, 0],
    {"a": 1},
)


def places_in(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a JSON value."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [place for key in keys for place in ((node, key), *places_in(node[key]))]


def mutate(data: dict[str, Any], dice: random.Random) -> None:
    container, key = dice.choice(places_in(data))
    action = dice.randrange(4)
    if action == 0:
        del container[key]
    elif action == 1 and isinstance(container, dict):
        container[str(dice.choice(JUNK))] = container.pop(key)
    elif action == 2 and isinstance(container, list):
        container.insert(key, dice.choice(JUNK))
    else:
        container[key] = copy.deepcopy(dice.choice(JUNK))


def test_a_mutated_plan_is_refused_or_harmless(saved: Path):
    dice = random.Random(0)
    original = json.loads((saved / "plan.json").read_text())

    def damage() -> None:
        data = copy.deepcopy(original)
        for _ in range(dice.choice((1, 1, 1, 2, 5))):
            mutate(data, dice)
        (saved / "plan.json").write_text(json.dumps(data))
        rewrite_sums(saved)

    assert count_refusals(saved, (damage() for _ in range(800))) > 600


@pytest.mark.parametrize(("name", "least_refused"), [("plan.json", 200), ("model.safetensors", 300)])
def test_random_bytes_are_refused_or_harmless(saved: Path, name: str, least_refused: int):
    dice = random.Random(0)
    original = (saved / name).read_bytes()
    # Behind the header of a safetensors file any bytes are numbers.
    end = len(original) if name == "plan.json" else 8 + int.from_bytes(original[:8], "little")

    def damage() -> None:
        damaged = bytearray(original)
        for _ in range(dice.choice((1, 1, 3, 20))):
            damaged[dice.randrange(end)] = dice.randrange(256)
        (saved / name).write_bytes(
            damaged[: dice.choice((len(damaged), len(damaged), dice.randrange(len(damaged))))]
        )
        rewrite_sums(saved)

    assert count_refusals(saved, (damage() for _ in range(400))) > least_refused


def test_an_axis_that_is_cut_twice_is_refused(saved: Path):
    rewrite_json(saved, lambda data: data["plans"][0]["cuts"].append(data["plans"][0]["cuts"][0]))
    assert_refused(saved, Tower())


def test_a_chain_that_breaks_late_leaves_no_cut_behind(tmp_path: Path):
    small = small_tower((0, 2, 3, 7))
    apply_plan(small, tower_plan(small, (1, 3)))
    save(small, tmp_path / "small")

    def damage(data: dict[str, Any]) -> None:
        data["plans"][1]["shapes"]["last.bias"] = [4]

    rewrite_json(tmp_path / "small", damage)
    assert_refused(tmp_path / "small", Tower(), kind=ModelMismatchError, names="last.bias")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "7",
        "[" * 100_000,
        '{"format": "trainonce"}',
        '{"format": "other", "version": 1}',
        "\xff",
        "9" * 5000,
    ],
)
def test_a_plan_that_is_none_is_refused(saved: Path, text: str):
    (saved / "plan.json").write_text(text, encoding="latin-1")
    rewrite_sums(saved)
    assert_refused(saved, Tower(), names="corrupt")


def test_a_newer_version_asks_for_a_newer_library(saved: Path):
    rewrite_json(saved, lambda data: data.update(version=2))
    assert_refused(saved, Tower(), names="version 2")


@pytest.mark.parametrize("name", ["plan.json", "model.safetensors"])
def test_an_oversized_file_is_not_read(saved: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    # Sparse: 40 GB of nothing, which take minutes to read and no room to write.
    os.truncate(saved / name, 40 * 2**30)
    for reader in ("digest", "safe_open"):
        monkeypatch.setattr(reading, reader, lambda path, **_: pytest.fail(f"{path} was read"))
    if name == "plan.json":
        monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    assert_refused(saved, Tower(), names=f"{name} has {40 * 2**30} bytes")


@pytest.mark.parametrize("part", ["[],", "{},", '{"a":1},', '"ab",', "257,"])
def test_no_plan_takes_more_memory_than_lists_of_numbers_do(part: str):
    """At every length: what is not refused takes less than twice its length and 300 MB, parsed."""
    size = sys.getsizeof
    for length in (2**20, 2**23, 2**25):
        text = b"[" + part.encode() * (length // len(part)) + b"0]"
        sample = json.loads(text[: len(part) * 1000 + 1] + b"0]")
        each = (
            8 + size(sample[0]) + sum(size(item) for item in sample[0].values())
            if isinstance(sample[0], dict)
            else 8 + size(sample[0])
        )
        if not takes_much_memory(text):
            assert each * (length // len(part)) < 2 * length + 300 * 2**20


def test_names_that_look_like_paths_are_only_names(saved: Path):
    def rename(data: dict[str, Any]) -> None:
        data["tensors"]["../../outside"] = data["tensors"].pop("first.weight")

    rewrite_json(saved, rename)
    assert_refused(saved, Tower(), kind=ModelMismatchError, names="../../outside")
    assert sorted(path.name for path in saved.parent.iterdir()) == ["small"]


def test_a_pickle_in_place_of_weights_is_not_run(saved: Path):
    fuse = saved.parent / "fuse"
    (saved / "model.safetensors").write_bytes(f"cos\nsystem\n(S'touch {fuse}'\ntR.".encode())
    rewrite_sums(saved)
    assert_refused(saved, Tower(), names="model.safetensors")
    assert not fuse.exists()


@pytest.mark.parametrize("change", ["missing", "further", "shape", "dtype"])
def test_weights_that_the_plan_does_not_name_are_refused(saved: Path, change: str):
    weights = load_file(saved / "model.safetensors")
    bias = weights.pop("last.bias")
    if change != "missing":
        weights["last.bias"] = {"further": bias, "shape": bias[:2].clone(), "dtype": bias.double()}[change]
    if change == "further":
        weights["more"] = torch.zeros(2)
    save_file(weights, saved / "model.safetensors")
    rewrite_sums(saved)
    assert_refused(saved, Tower(), names="model.safetensors")


@pytest.mark.parametrize("stored", ["nowhere", "answer.weight", "other"])
def test_a_tie_to_no_stored_tensor_is_refused(tmp_path: Path, stored: str):
    save(Reader(), tmp_path / "small")

    def damage(data: dict[str, Any]) -> None:
        data["tensors"]["other"] = [[1], "float32"]
        data["tied"]["answer.weight"] = stored

    rewrite_json(tmp_path / "small", damage)
    assert_refused(tmp_path / "small", Reader(), names="corrupt")
