"""What is saved comes back bit for bit, onto the same objects.

A model that does not fit is refused and unchanged.
"""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from support.towers import (
    FILES,
    Reader,
    Tower,
    assert_equal_models,
    assert_refused,
    reader_plan,
    small_tower,
    tower_plan,
)
from trainonce.errors import ModelMismatchError
from trainonce.storage.artifact import load, save
from trainonce.surgery.slicing import apply_plan, plans_of


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_loaded_equals_saved(tmp_path: Path, dtype: torch.dtype):
    small = small_tower(dtype=dtype)
    save(small, tmp_path / "small")
    again = load(tmp_path / "small", into=Tower().to(dtype).eval())
    assert_equal_models(again, small)
    assert torch.equal(again.ramp, small.ramp)
    assert plans_of(again) == plans_of(small)
    assert again.last.in_channels == 4
    images = torch.randn(2, 2, 8, 8, dtype=dtype)
    assert torch.equal(again(images), small(images))


def test_a_chain_of_cuts_loads_from_any_point_on_it(tmp_path: Path):
    small = small_tower((0, 2, 3, 7))
    apply_plan(small, tower_plan(small, (1, 3)))
    save(small, tmp_path / "small")
    halfway = Tower().eval()
    apply_plan(halfway, plans_of(small)[0])
    for start in (Tower().eval(), halfway, copy.deepcopy(small)):
        again = load(tmp_path / "small", into=start)
        assert_equal_models(again, small)
        assert torch.equal(again.ramp, small.ramp)
        assert plans_of(again) == plans_of(small)


def test_a_model_that_was_built_small_takes_the_weights(saved: Path):
    assert_equal_models(load(saved, into=Tower(width=4).eval()), load(saved, into=Tower().eval()))


def test_a_model_that_was_never_cut_survives(tmp_path: Path):
    dense = Tower()
    save(dense, tmp_path / "dense")
    assert_equal_models(load(tmp_path / "dense", into=Tower()), dense)
    assert_refused(tmp_path / "dense", small_tower(), kind=ModelMismatchError)


def test_a_loaded_model_can_be_saved_again_byte_for_byte(saved: Path, tmp_path: Path):
    save(load(saved, into=Tower()), tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes()


def test_loading_keeps_the_users_objects(saved: Path):
    tower = Tower().train()
    tower.first.bias.requires_grad_(False)
    identity = {name: id(parameter) for name, parameter in tower.named_parameters()}
    optimizer = torch.optim.SGD(tower.parameters(), lr=0.1)
    load(saved, into=tower)
    assert {name: id(parameter) for name, parameter in tower.named_parameters()} == identity
    assert tower.training
    assert [name for name, parameter in tower.named_parameters() if not parameter.requires_grad] == [
        "first.bias"
    ]
    before = tower.first.weight.detach().clone()
    tower(torch.randn(2, 2, 8, 8)).square().sum().backward()
    optimizer.step()
    assert tower.first.weight.shape == (4, 2, 3, 3)
    assert not torch.equal(tower.first.weight, before)


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path):
    reader = Reader()
    apply_plan(reader, reader_plan(reader, (1, 2, 5)))
    save(reader, tmp_path / "small")
    assert list(load_file(tmp_path / "small" / "model.safetensors")) == ["words.weight"]
    again = load(tmp_path / "small", into=Reader())
    assert again.answer.weight is again.words.weight
    assert torch.equal(again(torch.arange(5)), reader(torch.arange(5)))


def test_weights_that_differ_are_not_forced_onto_one_tensor(tmp_path: Path):
    save(Reader(tied=False), tmp_path / "untied")
    assert_refused(tmp_path / "untied", Reader(), kind=ModelMismatchError, names="answer.weight")
    save(Reader(), tmp_path / "tied")
    again = load(tmp_path / "tied", into=Reader(tied=False))
    assert torch.equal(again.answer.weight, again.words.weight)


def test_only_what_persists_is_stored(saved: Path):
    assert load_file(saved / "model.safetensors").keys() == Tower().state_dict().keys()


def test_buffers_that_look_at_the_same_memory_survive(tmp_path: Path):
    def build() -> nn.Module:
        model = nn.Module()
        whole = torch.randn(6)
        model.register_buffer("whole", whole)
        model.register_buffer("start", whole[:3])
        model.register_buffer("spread", torch.randn(1).expand(4))
        model.register_buffer("empty", torch.zeros(0, 3))
        model.register_buffer("also_empty", torch.zeros(0, 3))
        return model

    model = build()
    save(model, tmp_path / "views")
    assert_equal_models(load(tmp_path / "views", into=build()), model)


def test_another_class_is_refused(saved: Path):
    assert_refused(saved, Reader(), kind=ModelMismatchError, names="Tower")
    assert_refused(saved, nn.DataParallel(Tower()), kind=ModelMismatchError, names="DataParallel")


def test_a_class_that_moved_to_another_module_is_accepted(saved: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Tower, "__module__", "moved.towers")
    again = load(saved, into=Tower())
    assert [plan.model for plan in plans_of(again)] == ["moved.towers.Tower"]


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda: Tower(width=9), "first.weight"),
        (lambda: Tower(num_outputs=4), "last.weight"),
        (lambda: Tower().double(), "float32"),
        (lambda: Tower().to("meta"), "meta"),
        (lambda: small_tower((0, 1, 2, 3)), "other plans"),
    ],
)
def test_another_build_is_refused(saved: Path, build: Callable[[], nn.Module], names: str):
    model = build()
    if any(tensor.is_meta for tensor in model.parameters()):
        with pytest.raises(ModelMismatchError, match=names):
            load(saved, into=model)
    else:
        assert_refused(saved, model, kind=ModelMismatchError, names=names)


def test_a_model_with_more_or_fewer_tensors_is_refused(saved: Path):
    tower = Tower()
    tower.extra = nn.Linear(2, 2)
    assert_refused(saved, tower, kind=ModelMismatchError, names="extra.weight")
    tower = Tower()
    tower.last.register_parameter("bias", None)
    assert_refused(saved, tower, kind=ModelMismatchError, names="last.bias")


def test_a_module_that_remembers_another_size_is_refused(saved: Path):
    tower = Tower()
    tower.norm.num_features = 7
    assert_refused(saved, tower, kind=ModelMismatchError, names="norm.num_features")
