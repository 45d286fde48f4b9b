"""A run's newest checkpoint, damaged or forged.

It is refused in one line and the one before it is used, or it can be put back.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

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
from fuzzing.registry import Attempt, Trial, refuse, target
from support.runs import Counter, interrupt, make_data, make_net, make_settings
from trainonce.errors import RunInterruptedError
from trainonce.storage.checkpoint import find_newest, recover, save_checkpoint
from trainonce.training import fit
from trainonce.training.loop.trainer import Trainer
from trainonce.training.resuming.saved_state import bounds_of, check_saved
from trainonce.training.session import Session

FILES = STATE, TENSORS, SUMS = "state.json", "state.safetensors", "SHA256SUMS"
SETTINGS = {"epochs": 4, "model_ema": True, "keep_checkpoints": 3, "opt": "adamw", "lr": 0.002}


@target("checkpoint", cases=600)
def checkpoint(place: Path) -> Trial:
    trainer, step, contents = stopped_run(place / "run")
    tensors = contents.pop("tensors")
    save_checkpoint(place / "case", step - 1, {"step": "before"}, keep_last=9)
    bounds = bounds_of(trainer)

    def check(found_step: int, state: Any) -> None:
        # The one before is not under test: it only has to be found.
        if found_step == step:
            check_saved(found_step, state, trainer)

    def trial(dice: random.Random) -> Attempt:
        case = place / "case" / f"step-{step:09d}"
        if case.is_symlink() or case.is_file():
            case.unlink()
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir()
        for file in FILES:
            (case / file).write_bytes(contents[file])
        dice.choice(DAMAGES)(case, contents, tensors, dice)

        def attempt() -> str:
            recover(place / "case")
            found = find_newest(place / "case", check=check, bounds=bounds)
            assert found is not None
            if found.step == step:
                return put_back(found.state["trainer"], trainer)
            (line,) = found.refused
            refuse(line)

        return attempt

    return trial


def put_back(state: Any, trainer: Trainer) -> str:
    """What was accepted must be possible to put back; on a trainer of its own, which is thrown away."""
    fresh = copy.deepcopy(trainer) if trainer.pruner is None else new_trainer()
    fresh.load_state_dict(state)
    return "put back"


def caught_trainer(out: Path, *, resume: bool) -> Trainer:
    """The trainer of a run, as it is before it is restored."""
    seen: list[Trainer] = []

    def catch(self: Session, trainer: Trainer) -> None:
        seen.append(trainer)
        raise RunInterruptedError("seen")

    restore, Session._restore = Session._restore, catch  # type: ignore[method-assign]
    try:
        fit(
            make_net(),
            make_data(),
            settings=make_settings(**SETTINGS),
            out=out if resume else None,
            resume=resume,
            quiet=True,
        )
    except RunInterruptedError:
        return seen[0]
    finally:
        Session._restore = restore  # type: ignore[method-assign]
    raise AssertionError("the run was not caught")


new_trainer = partial(caught_trainer, Path("nowhere"), resume=False)


def stopped_run(out: Path) -> tuple[Trainer, int, dict[str, Any]]:
    """The trainer of a run stopped after its cut, the step, and the files of its newest checkpoint."""
    try:
        fit(
            make_net(),
            make_data(),
            settings=make_settings(**SETTINGS),
            loss=Counter({11}, interrupt),
            out=out,
            quiet=True,
        )
    except RunInterruptedError:
        newest = find_newest(out / "checkpoints")
    assert newest is not None
    contents: dict[str, Any] = {name: (newest.path / name).read_bytes() for name in FILES}
    contents["tensors"] = {name: tensor.clone() for name, tensor in load_file(newest.path / TENSORS).items()}
    trainer = caught_trainer(out, resume=True)
    shutil.rmtree(out)
    return trainer, newest.step, contents


def flip(case: Path, contents: dict[str, bytes], tensors: dict[str, Tensor], dice: random.Random) -> None:
    file = dice.choice(FILES)
    (case / file).write_bytes(dice.choice((flipped, truncated))(contents[file], dice))
    if dice.random() < 0.5:
        seal(case)


def forge_state(
    case: Path, contents: dict[str, bytes], tensors: dict[str, Tensor], dice: random.Random
) -> None:
    (case / STATE).write_bytes(as_json(mutated(json.loads(contents[STATE]), dice), dice))
    seal(case)


def forge_values(
    case: Path, contents: dict[str, bytes], tensors: dict[str, Tensor], dice: random.Random
) -> None:
    """Other numbers in places that are not for tensors: right in form, wrong in meaning."""
    data = json.loads(contents[STATE])
    plain = [
        (part, place) for part, place in _pairs(data["state"]) if not isinstance(part[place], list | dict)
    ]
    for part, place in dice.sample(plain, dice.choice((1, 1, 3))):
        part[place] = dice.choice(
            [0, 1, -1, 3, 10**9, 10**30, 0.5, None, True, "x", {"float": "nan"}, {"float": "inf"}, junk(dice)]
        )
    (case / STATE).write_bytes(as_json(data, dice))
    seal(case)


def _pairs(node: Any) -> list[tuple[Any, int]]:
    """Every place of a plain value in packed state: the second of a pair, or an entry of a list."""
    found: list[tuple[Any, int]] = []
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            for kind, content in here.items():
                if kind == "dict":
                    found += [(pair, 1) for pair in content]
                    waiting += [pair[1] for pair in content]
                elif kind in ("list", "tuple"):
                    found += [(content, place) for place in range(len(content))]
                    waiting += content
    return found


def forge_tensors(
    case: Path, contents: dict[str, bytes], tensors: dict[str, Tensor], dice: random.Random
) -> None:
    forged = dict(tensors)
    for name in dice.sample(list(forged), dice.randrange(1, 4)):
        value = forged[name]
        action = dice.randrange(6)
        if action == 0:
            del forged[name]
        elif action == 1:
            forged[name] = value.to(dice.choice([torch.float64, torch.int64, torch.bool, torch.uint8]))
        elif action == 2:
            forged[name] = torch.zeros(*value.shape, 2, dtype=value.dtype)
        elif action == 3:
            forged[name] = value.flatten()[: dice.choice([0, 1, 7])].clone()
        elif action == 4:
            forged[name] = torch.full_like(value, dice.choice([0, 1, 3]))
        else:
            forged[name] = torch.full_like(value, float("nan")) if value.is_floating_point() else value
    save_file(forged, case / TENSORS)
    seal(case)


def swell(case: Path, contents: dict[str, bytes], tensors: dict[str, Tensor], dice: random.Random) -> None:
    write_sparse(case / dice.choice(FILES), dice.choice([2**28, 2**35]))


def fill_up(case: Path, contents: dict[str, bytes], tensors: dict[str, Tensor], dice: random.Random) -> None:
    """As much JSON as is read at all, of the kind that takes most memory."""
    part = dice.choice([b'{"list":[]},', b"[],", b"{},", b'"ab",', b"257,"])
    size = dice.choice([2**17, 2**20])
    text = (
        b'{"format": "trainonce-checkpoint", "version": 1, "state": {"list": ['
        + part * (size // len(part))
        + b"0]}}"
    )
    (case / STATE).write_bytes(text)
    seal(case)


def disturb(case: Path, contents: dict[str, bytes], tensors: dict[str, Tensor], dice: random.Random) -> None:
    replace_by_no_file(case / dice.choice(FILES), dice)


def seal(case: Path) -> None:
    write_sums(case, FILES[:2])


DAMAGES: tuple[Callable[[Path, dict[str, bytes], dict[str, Any], random.Random], None], ...] = (
    flip,
    forge_state,
    forge_state,
    forge_state,
    forge_values,
    forge_values,
    forge_values,
    forge_tensors,
    forge_tensors,
    swell,
    fill_up,
    disturb,
)
