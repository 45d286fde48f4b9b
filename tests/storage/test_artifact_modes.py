"""`load` works under every mode of torch, and is done as a whole or not at all."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from support.towers import Tower, assert_equal_models, assert_refused, portrait
from trainonce.errors import ModelMismatchError
from trainonce.storage.artifact import folder, load

MODES: dict[str, Any] = {
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "grad": torch.enable_grad,
}


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("built_inside", [False, True])
def test_a_model_loads_in_every_mode(saved: Path, mode: str, built_inside: bool):
    plain = load(saved, into=Tower().eval())
    context: AbstractContextManager[Any] = MODES[mode]()
    outside = Tower().eval()
    with context:
        model = load(saved, into=Tower().eval() if built_inside else outside)
        assert_equal_models(model, plain)
        images = torch.randn(1, 2, 8, 8)
        assert torch.equal(model(images), plain(images))
    if mode == "inference" and built_inside:
        # Parameters that torch made in inference mode can't be trained at all.
        return
    # What comes out can be trained, whatever mode it was loaded in.
    model(torch.randn(2, 2, 8, 8)).square().sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad)
    assert not any(tensor.is_inference() for tensor in model.state_dict().values())


@pytest.mark.parametrize("at", [1, 3, 5, 8])
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_a_load_that_fails_half_way_leaves_the_model_as_it_was(
    saved: Path, at: int, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
):
    tower = Tower()
    before, write, calls = portrait(tower), folder._write_tensor, 0

    def fail(tensor: Tensor, value: Tensor) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            tensor.zero_()
            raise kind("out of memory")
        write(tensor, value)

    monkeypatch.setattr(folder, "_write_tensor", fail)
    with pytest.raises(kind):
        load(saved, into=tower)
    assert portrait(tower) == before
    monkeypatch.undo()
    assert_equal_models(load(saved, into=tower), load(saved, into=Tower()))


def test_a_model_of_both_modes_is_refused_and_unchanged(saved: Path):
    tower = Tower()
    with torch.inference_mode():
        tower.norm = Tower().norm
    assert_refused(saved, tower, kind=ModelMismatchError, names="norm")
