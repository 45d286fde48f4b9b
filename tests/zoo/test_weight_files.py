"""Weights to start from: what fits is copied, what doesn't is said, and nothing in a file is ever run."""

from __future__ import annotations

import argparse
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from support.runs import make_net
from trainonce.errors import WeightsError
from trainonce.zoo import weight_files
from trainonce.zoo.head import replace_head
from trainonce.zoo.transfer import plan_transfer


def read(file: Path) -> weight_files.WeightFile:
    return weight_files.read_weights(file, model_bytes=20_000)


class Code:
    """Unpickled by anyone who would run it, it leaves a file behind."""

    def __init__(self, scar: Path) -> None:
        self.scar = scar

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.scar),)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


WRITERS: dict[str, Callable[[dict[str, torch.Tensor], Path], None]] = {
    "safetensors": lambda state, file: save_file(state, file),
    "torch": lambda state, file: torch.save(state, file),
    "older torch": lambda state, file: torch.save(state, file, _use_new_zipfile_serialization=False),
    "state_dict": lambda state, file: torch.save({"epoch": 3, "state_dict": state}, file),
    "model": lambda state, file: torch.save({"model": state, "optimizer": {"state": {}}}, file),
    "model_state_dict": lambda state, file: torch.save({"model_state_dict": state, "lr": 0.1}, file),
    "arguments beside it": lambda state, file: torch.save(
        {"state_dict": state, "args": argparse.Namespace(lr=0.1)}, file
    ),
    "nested twice": lambda state, file: torch.save({"model": {"state_dict": state}}, file),
    "data parallel": lambda state, file: torch.save({f"module.{name}": state[name] for name in state}, file),
    "compiled": lambda state, file: torch.save(
        {"state_dict": {f"module._orig_mod.{name}": state[name] for name in state}}, file
    ),
    "an average": lambda state, file: torch.save({"epoch": 3, "ema": {"module": state}}, file),
    "weights and their average": lambda state, file: torch.save(
        {"model": state, "ema": make_net(2).state_dict()}, file
    ),
    "a trainer's own prefix": lambda state, file: torch.save(
        {"state_dict": {f"model.net.{name}": state[name] for name in state}}, file
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_whatever_holds_the_weights_gives_the_weights(writer: str, tmp_path: Path):
    state = make_net(1).state_dict()
    WRITERS[writer](state, tmp_path / "weights")
    model = make_net(0)
    transfer = plan_transfer(read(tmp_path / "weights"), model)
    assert not same(model.state_dict(), state)
    transfer.apply(model)
    assert same(model.state_dict(), state)
    assert (transfer.head, transfer.missing, transfer.unexpected) == (None, (), ())


def written(file: Path, content: Any) -> None:
    torch.save(content, file)


def touched(file: Path) -> Path:
    file.touch()
    return file


def bomb(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2**26))


BAD_FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda file: None, r"there is no file .*weights"),
    "a folder": (lambda file: file.mkdir(), r"is a folder\. Pass a file in it"),
    "a pipe": (lambda file: os.mkfifo(file), r"there is no file"),
    "empty": (lambda file: file.write_bytes(b""), r"is empty\. Copy it again"),
    "text": (lambda file: file.write_text("hello " * 99), r"not a file of weights"),
    "cut off": (
        lambda file: (written(file, make_net().state_dict()), os.truncate(file, file.stat().st_size // 2)),
        r"is only the beginning of a file\. Copy it again",
    ),
    "code": (
        lambda file: written(file, {"state_dict": Code(file.parent / "scar")}),
        r"asks to run code \(posix",
    ),
    "code in an old pickle": (
        lambda file: file.write_bytes(pickle.dumps(Code(file.parent / "scar"), protocol=2)),
        r"asks to run code \(posix|not a file of weights",
    ),
    "a whole model": (lambda file: written(file, make_net()), r"asks to run code \(support\.runs\.Net\)"),
    "code beside a namespace": (
        lambda file: written(file, {"args": argparse.Namespace(lr=Code(file.parent / "scar"))}),
        r"asks to run code \(posix",
    ),
    "another name": (
        lambda file: written(file, {"generator": make_net().state_dict(), "step": 1}),
        r"holds no weights under state_dict, model_state_dict, .*, params_ema, but generator, step\. Save",
    ),
    "no tensors": (lambda file: written(file, {"epoch": 3, "model": {"a": 1}}), r"holds no weights"),
    "a tensor": (lambda file: written(file, torch.zeros(3)), r"holds no weights"),
    "damaged safetensors": (
        lambda file: file.write_bytes((30).to_bytes(8, "little") + b"{" + b"x" * 90),
        r"is damaged",
    ),
    "too large": (lambda file: os.truncate(touched(file), 2**40), r"has 1,099,511,627,776 bytes, and a"),
    "a bomb": (bomb, r"would unpack to 67,108,864 bytes"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line_and_runs_nothing(kind: str, tmp_path: Path):
    make, words = BAD_FILES[kind]
    make(tmp_path / "weights")
    with pytest.raises(WeightsError, match=words) as caught:
        read(tmp_path / "weights")
    assert str(caught.value).isprintable()
    assert not (tmp_path / "scar").exists()


def transferred(tmp_path: Path, state: dict[str, Any], model: nn.Module) -> Any:
    torch.save(state, tmp_path / "weights.pth")
    return plan_transfer(read(tmp_path / "weights.pth"), model)


def test_another_number_of_classes_gets_a_new_head_and_everything_else_is_copied(tmp_path: Path):
    donor, model = make_net(1), make_net(0)
    assert str(replace_head(donor, 9, before=4)) == "new head head: 9 outputs instead of 4"
    own_head = model.head.weight.detach().clone()
    transfer = transferred(tmp_path, donor.state_dict(), model)
    transfer.apply(model)
    assert "new head head: 4 outputs instead of 9" in str(transfer)
    assert torch.equal(model.head.weight, own_head)
    assert same(model.body.state_dict(), donor.body.state_dict())


def test_names_that_are_missing_or_left_over_are_said_in_one_line(tmp_path: Path):
    state = make_net(1).state_dict()
    del state["head.weight"], state["head.bias"], state["body.1.num_batches_tracked"]
    state |= {f"aux.{number}": torch.zeros(2) for number in range(6)}
    transfer = transferred(tmp_path, state, make_net(0))
    assert transfer.missing == ("head.weight", "head.bias")
    assert str(transfer).endswith(
        "missing: head.weight, head.bias; unexpected: aux.0, aux.1, aux.2, aux.3 and 2 more"
    )
    assert str(transfer).isprintable()


def test_an_average_is_named(tmp_path: Path):
    transfer = transferred(tmp_path, {"model_ema": make_net(1).state_dict()}, make_net(0))
    assert str(transfer).endswith("weights.pth (model_ema)")


def test_what_stands_beside_a_model_with_a_prefix_is_left_over(tmp_path: Path):
    state = {f"net.{name}": tensor for name, tensor in make_net(1).state_dict().items()}
    net = make_net(0)
    undo = transferred(tmp_path, {**state, "criterion.weight": torch.ones(3)}, net).apply(net)
    assert same(net.state_dict(), make_net(1).state_dict())
    undo()
    assert same(net.state_dict(), make_net(0).state_dict())
    others = {name.replace("net.", "teacher."): tensor for name, tensor in state.items()}
    with pytest.raises(
        WeightsError, match=r"several models with the names of this one \(net, teacher\)\. Save"
    ):
        transferred(tmp_path, {**state, **others}, net)


def test_tied_weights_need_one_of_their_names(tmp_path: Path):
    model = nn.ModuleDict({"one": nn.Linear(4, 4), "other": nn.Linear(4, 4)})
    model["other"].weight = model["one"].weight
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "other.weight"}
    assert transferred(tmp_path, state, model).missing == ()


def spoiled(**changes: Any) -> dict[str, Any]:
    return make_net(1).state_dict() | {name.replace("__", "."): value for name, value in changes.items()}


OTHERS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "another model": (lambda: nn.Linear(3, 3).state_dict(), r"holds 0 % of the parameters of this Net"),
    "a small part": (lambda: make_net().head.state_dict(), r"holds 0 % of the parameters"),
    "another width": (
        lambda: spoiled(body__4__weight=torch.zeros(24, 8, 3, 3)),
        r"body\.4\.weight is 24x8x3x3 in .* and 24x16x3x3 in the model",
    ),
    "two other widths": (
        lambda: spoiled(head__weight=torch.zeros(7, 24), head__bias=torch.zeros(8)),
        r"head\.weight is 7x24 in",
    ),
    "another rank": (lambda: spoiled(head__bias=torch.zeros(())), r"head\.bias is a scalar in"),
    "quantized": (
        lambda: spoiled(head__bias=torch.zeros(4, dtype=torch.int8)),
        r"head\.bias is torch\.int8 in .* not quantized",
    ),
    "not finite": (
        lambda: spoiled(head__bias=torch.full((4,), torch.nan)),
        r"head\.bias in .* is not finite",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_weights_of_another_model_are_refused_and_change_nothing(kind: str, tmp_path: Path):
    make, words = OTHERS[kind]
    model = make_net(0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(WeightsError, match=words) as caught:
        transferred(tmp_path, make(), model)
    assert str(caught.value).isprintable()
    assert same(model.state_dict(), before)


@pytest.mark.parametrize("are_counters_halved", [False, True])
def test_half_precision_becomes_the_models_own(tmp_path: Path, are_counters_halved: bool):
    state = {
        name: tensor.half() if tensor.is_floating_point() or are_counters_halved else tensor
        for name, tensor in make_net(1).state_dict().items()
    }
    model = make_net(0)
    transferred(tmp_path, state, model).apply(model)
    assert model.head.weight.dtype is torch.float32
    assert torch.equal(model.head.weight, state["head.weight"].float())
