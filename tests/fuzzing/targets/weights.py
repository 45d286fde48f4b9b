"""A file of weights to start from: what is left of it is loaded, or it is refused in one line."""

from __future__ import annotations

import io
import os
import random
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safe_save

from fuzzing.mutation import flipped, truncated, write_sparse
from fuzzing.registry import Attempt, Trial, target
from support.runs import make_net
from trainonce.zoo.transfer import plan_transfer
from trainonce.zoo.weight_files import read_weights

Make = Callable[[dict[str, Any], random.Random], bytes]


SCAR = Path(tempfile.gettempdir()) / f"trainonce-fuzzing-has-run-code-{os.getpid()}"


class Code:
    """Leaves a folder behind, if anybody runs it."""

    def __reduce__(self) -> Any:
        return os.mkdir, (str(SCAR),)


@target("weights", cases=400)
def weights(place: Path) -> Trial:
    state, file = make_net(1).state_dict(), place / "weights"

    def trial(dice: random.Random) -> Attempt:
        file.unlink(missing_ok=True)
        content = dice.choice(WRITERS)(spoiled(dict(state), dice), dice)
        for _ in range(dice.choice((0, 1, 1, 2))):
            content = dice.choice((flipped, truncated, rezipped))(content, dice)
        file.write_bytes(content)
        if dice.random() < 0.03:
            write_sparse(file, dice.choice([2**28, 2**35]))
        return attempt

    def attempt() -> str:
        model = make_net(0)
        try:
            plan_transfer(read_weights(file, model_bytes=20_000), model).apply(model)
        finally:
            assert not SCAR.exists()
        assert all(bool(tensor.isfinite().all()) for tensor in model.parameters())
        return "loaded"

    return trial


def spoiled(state: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """The state with a few entries that are not what they were."""
    for name in dice.sample(list(state), dice.choice((0, 0, 1, 2))):
        state[name] = dice.choice(VALUES)(state[name], dice)
    if dice.random() < 0.2:
        state |= {dice.choice(["", "x\x1b[31m", "head.", "y" * 10**5]): dice.choice([torch.zeros(2), 3])}
    return state


VALUES: tuple[Callable[[torch.Tensor, random.Random], Any], ...] = (
    lambda tensor, dice: tensor.new_zeros(dice.sample(range(9), dice.randint(0, 4))),
    lambda tensor, dice: tensor.to(dice.choice([torch.int8, torch.double, torch.bool, torch.complex64])),
    lambda tensor, dice: torch.full_like(tensor.float(), dice.choice([float("nan"), float("inf")])),
    lambda tensor, dice: torch.zeros(1).expand(2**40),
    lambda tensor, dice: tensor.float().to_sparse(),
    lambda tensor, dice: dice.choice([None, 3, "x", [tensor], {"weight": tensor}]),
)


def by_torch(state: dict[str, Any], dice: random.Random) -> bytes:
    stream = io.BytesIO()
    nested = dice.choice(
        [state, {"state_dict": state}, {"model": {"module": state}}, {"model": state, "lr": 1}]
    )
    if dice.random() < 0.1:
        nested = nested | {"callbacks": Code()}
    torch.save(nested, stream, _use_new_zipfile_serialization=dice.random() < 0.7)
    return stream.getvalue()


def by_safetensors(state: dict[str, Any], dice: random.Random) -> bytes:
    tensors = {
        str(name): tensor.contiguous()
        for name, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and not tensor.is_sparse and tensor.numel() < 10**6
    }
    return safe_save(tensors)


def rezipped(content: bytes, dice: random.Random) -> bytes:
    """The same archive, compressed, with an entry more or less."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return content
    stream = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(stream, "w", 8) as after:
            for name in before.namelist():
                if dice.random() < 0.9:
                    after.writestr(name, before.read(name) + bytes(dice.choice([0, 0, 0, 10**7])))
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError):
        return content
    return stream.getvalue()


WRITERS: tuple[Make, ...] = (by_torch, by_torch, by_safetensors)
