"""`trainonce.load` on damaged and forged folders; whatever is refused leaves the model as it was."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import trainonce
from fuzzing.mutation import (
    as_json,
    flipped,
    junk,
    mutated,
    replace_by_no_file,
    truncated,
    write_sparse,
    write_sums,
)
from fuzzing.registry import Attempt, Trial, target
from support.towers import FILES, Tower, portrait, save_small

PLAN, WEIGHTS, SUMS = FILES


class Attention(nn.Module):
    """Sizes that only a run of the model can confirm."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.port = 4, 8080
        self.qkv = nn.Linear(6, 48)
        self.out = nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).view(*x.shape[:2], 3, self.num_heads, 4).permute(2, 0, 3, 1, 4)
        return self.out(
            nn.functional.scaled_dot_product_attention(query, key, value, scale=0.5)
            .transpose(1, 2)
            .flatten(2)
        )


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return {"tower": Tower, "attention": Attention}[name]().eval()


@target("artifact", cases=2500)
def artifact(place: Path) -> Trial:
    originals = place / "originals"
    originals.mkdir()
    save_small(originals).rename(originals / "tower")
    attention = build("attention")
    trainonce.cut(
        attention, trainonce.Plan.random(trainonce.inspect(attention, torch.randn(1, 3, 6)), keep=0.5)
    )
    trainonce.save(attention, originals / "attention")
    contents = {
        name: {file: (originals / name / file).read_bytes() for file in FILES}
        for name in ("tower", "attention")
    }
    weights = {name: load_file(originals / name / WEIGHTS) for name in contents}
    weights = {
        name: {key: tensor.clone() for key, tensor in tensors.items()} for name, tensors in weights.items()
    }
    shutil.rmtree(originals)
    models, portraits = {}, {}

    def renew(name: str) -> None:
        models[name] = build(name)
        portraits[name] = portrait(models[name])

    for name in contents:
        renew(name)

    def trial(dice: random.Random) -> Attempt:
        name = dice.choice(("tower", "tower", "tower", "attention"))
        case = place / "case"
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir()
        for file, content in contents[name].items():
            (case / file).write_bytes(content)
        dice.choice(DAMAGES)(case, contents[name], weights[name], dice)

        def attempt() -> str:
            try:
                trainonce.load(case, into=models[name])
            except Exception:
                if portrait(models[name]) != portraits[name]:
                    renew(name)
                    raise AssertionError("a refused load has changed the model") from None
                raise
            renew(name)
            return "loaded"

        return attempt

    return trial


def flip(case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random) -> None:
    file = dice.choice(FILES)
    (case / file).write_bytes(dice.choice((flipped, truncated))(contents[file], dice))


def flip_and_seal(
    case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random
) -> None:
    file = dice.choice(FILES[:2])
    (case / file).write_bytes(dice.choice((flipped, truncated))(contents[file], dice))
    seal(case)


def forge_plan(
    case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random
) -> None:
    (case / PLAN).write_bytes(as_json(mutated(json.loads(contents[PLAN]), dice), dice))
    seal(case)


def forge_attributes(
    case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random
) -> None:
    data = json.loads(contents[PLAN])
    modules = ["", "first", "norm", "last", "qkv", "out"]
    names = ["port", "num_heads", "stride", "training", "groups", "in_features", "_version", "padding", "eps"]
    change = [
        dice.choice(modules),
        dice.choice(names),
        dice.choice([None, 0, 1]),
        *(dice.choice([0, 1, 2, 3, 4, 8, 8080]) for _ in "ab"),
    ]
    data["plans"][0]["attributes"].append(change if dice.random() < 0.8 else mutated(change, dice))
    (case / PLAN).write_bytes(as_json(data, dice))
    seal(case)


def forge_outline(
    case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random
) -> None:
    data = json.loads(contents[PLAN])
    shape = [dice.choice([0, 1, 3, 6, 2000, 2**20, 2**40, -1]) for _ in range(dice.randrange(5))]
    outline = {
        "tensor": shape,
        "dtype": dice.choice(["float32", "float64", "int64", "bool", "object"]),
        "range": [0, dice.choice([1, 2**70])],
    }
    data["plans"][0]["outline"] = dice.choice(
        (outline, {"tuple": [outline] * 3}, {"dict": {"x": outline}}, junk(dice), mutated(outline, dice))
    )
    (case / PLAN).write_bytes(as_json(data, dice))
    seal(case)


def forge_weights(
    case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random
) -> None:
    tensors = dict(weights)
    for name in dice.sample(list(tensors), dice.randrange(1, 3)):
        value = tensors.pop(name)
        action = dice.randrange(5)
        if action == 0:
            tensors[dice.choice(["other", name * 50, "\n", ""])] = value
        elif action == 1:
            tensors[name] = value.to(dice.choice([torch.float64, torch.float16, torch.int64, torch.bool]))
        elif action == 2:
            tensors[name] = torch.zeros(*value.shape, 2)
        elif action == 3:
            tensors[name] = torch.zeros(dice.choice([0, 1, 10_000]))
    save_file(tensors, case / WEIGHTS)
    seal(case)


def forge_header(
    case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random
) -> None:
    length = int.from_bytes(contents[WEIGHTS][:8], "little")
    header = json.loads(contents[WEIGHTS][8 : 8 + length])
    text = as_json(mutated(header, dice), dice)
    claimed = dice.choice((len(text), len(text), 0, 2**63, 2**40, 2**26))
    (case / WEIGHTS).write_bytes(claimed.to_bytes(8, "little") + text + contents[WEIGHTS][8 + length :])
    seal(case)


def swell(case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random) -> None:
    file = dice.choice(FILES)
    write_sparse(case / file, dice.choice([2**21, 2**28, 2**35]))
    if (case / file).stat().st_size <= 2**21:
        seal(case)


def fill_up(case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random) -> None:
    """As much JSON as is read at all, of the kind that takes most memory."""
    part = dice.choice([b"[],", b"{},", b'"ab",', b"257,", b'{"a":[]},', "\U0001f600".encode() + b","])
    text = contents[PLAN][:-1] + b', "more": [' + part * (dice.choice([2**16, 2**19]) // len(part)) + b"0]}"
    (case / PLAN).write_bytes(text)
    seal(case)


def disturb(case: Path, contents: dict[str, bytes], weights: dict[str, Tensor], dice: random.Random) -> None:
    replace_by_no_file(case / dice.choice(FILES), dice)


def seal(case: Path) -> None:
    write_sums(case, FILES[:2])


DAMAGES: tuple[Callable[[Path, dict[str, bytes], dict[str, Any], random.Random], None], ...] = (
    flip,
    flip_and_seal,
    forge_plan,
    forge_plan,
    forge_plan,
    forge_attributes,
    forge_outline,
    forge_weights,
    forge_header,
    swell,
    fill_up,
    disturb,
)
