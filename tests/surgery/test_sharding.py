"""A model whose weights are spread over processes is refused in one line that says what works."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trainonce
from trainonce import ModelError, PrunerError

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no gloo"
)
WORDS = (
    r"^this model is sharded by {way}: [^\n]*DistributedDataParallel, or prune it on one process first[^\n]*$"
)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


def by_fully_shard(model: nn.Module) -> nn.Module:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    mesh = pytest.importorskip("torch.distributed.device_mesh").init_device_mesh("cpu", (1,))
    fsdp.fully_shard(model[0], mesh=mesh)
    return fsdp.fully_shard(model, mesh=mesh)


def by_wrapper(model: nn.Module) -> nn.Module:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    with warnings.catch_warnings():
        # One process has nothing to shard with.
        warnings.simplefilter("ignore", UserWarning)
        return fsdp.FullyShardedDataParallel(model, device_id=torch.device("cpu"))


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    ("shard", "way"), [(by_fully_shard, "fully_shard"), (by_wrapper, "FullyShardedDataParallel")]
)
def test_a_sharded_model_is_refused(shard: Callable[[nn.Module], nn.Module], way: str):
    model = shard(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [parameter.shape for parameter in model.parameters()]
    words = WORDS.format(way=way)
    with pytest.raises(ModelError, match=words):
        trainonce.inspect(model, torch.zeros(2, 6))
    with pytest.raises(PrunerError, match=words):
        trainonce.attach(model, optimizer, example=torch.zeros(2, 6), keep_flops=0.5, total_steps=9)
    with pytest.raises(PrunerError, match=words):
        trainonce.restore(model, {})
    assert [parameter.shape for parameter in model.parameters()] == before


@pytest.mark.usefixtures("one_process")
def test_a_part_of_a_sharded_model_is_refused_too():
    inner = by_fully_shard(net())[2]
    with pytest.raises(ModelError, match=WORDS.format(way=r"torch\.distributed\.tensor")):
        trainonce.inspect(inner, torch.zeros(2, 12))


@pytest.mark.usefixtures("one_process")
def test_what_the_message_advises_works():
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = trainonce.attach(model, optimizer, example=torch.zeros(2, 6), keep_flops=0.5, total_steps=2000)
    assert pruner.model is model.module
    small = net()
    trainonce.cut(small, trainonce.Plan.random(trainonce.inspect(small, torch.zeros(2, 6)), keep=0.5))
    assert by_fully_shard(small)(torch.zeros(2, 6)).shape == (2, 3)
