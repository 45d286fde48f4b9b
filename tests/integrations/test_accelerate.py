"""An own loop with Accelerate: one process and two, through the cuts, saved and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import trainonce
from support.bits import digest
from support.ranks import run_two
from trainonce.errors import PrunerError, TrainonceError

pytest.importorskip("accelerate", reason="needs accelerate")

from accelerate import Accelerator

from integrations.accelerate_runs import STEPS, make_net, train
from trainonce.integrations.accelerate import register, rewrap

pytestmark = pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")


def test_an_own_loop_gives_a_small_model():
    found = train()
    assert (found["cuts"], found["steps"]) == (2, STEPS)
    assert found["share"] <= 0.5
    sizes = [torch.tensor(weight).numel() for weight in found["weights"]]
    assert sum(sizes) < 0.7 * sum(weight.numel() for weight in make_net().parameters())


@pytest.mark.parametrize("save_at", [3, 8, 16], ids=["before the cuts", "between", "after"])
def test_a_saved_state_resumes_to_the_same_bits(tmp_path: Path, save_at: int):
    half = train(tmp_path / "state", save_at=save_at, stop=True)
    assert half["steps"] == save_at
    resumed = train(tmp_path / "state", save_at=save_at, resume=True)
    assert resumed["weights"] == train()["weights"]


def test_two_processes_train_one_small_model(tmp_path: Path):
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    run_two(Path(__file__).with_name("accelerate_runs.py"), str(tmp_path))
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first == second
    whole, resumed = first["whole"], first["resumed"]
    assert (whole["wrapper"], whole["models"]) == ("DistributedDataParallel", 1)
    assert (whole["cuts"], whole["steps"]) == (2, STEPS)
    assert whole["share"] <= 0.5
    assert resumed["weights"] == whole["weights"]
    assert (resumed["wrapper"], resumed["models"]) == ("DistributedDataParallel", 1)
    alone = train()
    for together, single in zip(whole["weights"], alone["weights"], strict=True):
        # The same global batches, summed in another order.
        assert torch.allclose(torch.tensor(together), torch.tensor(single), atol=1e-3)


def prepared(net: nn.Module, **settings: Any) -> Any:
    """An accelerator that has what a run registers."""
    accelerator: Any = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-2))
    schedule = trainonce.Schedule(search_from=2, settle_from=12, update_every=1)
    asked = {"keep_flops": 0.5, "total_steps": STEPS, "schedule": schedule, "round_to": 1} | settings
    register(accelerator, model, trainonce.attach(model, optimizer, example=torch.zeros(2, 12), **asked))
    return accelerator


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keep_flops": None}, "pass either keep_flops or keep_params"),
        ({"keep_flops": 1e-4}, "can't be reached"),
        ({"keep_flops": 0.6}, "another model, budget or total_steps"),
        ({"total_steps": STEPS + 6}, "another model, budget or total_steps"),
    ],
    ids=["no budget", "out of reach", "another budget", "another length"],
)
def test_bad_input_changes_nothing(tmp_path: Path, settings: dict[str, Any], words: str):
    train(tmp_path / "state", save_at=8, stop=True)
    net = make_net()
    before = digest(net)
    with pytest.raises(TrainonceError, match=rf"^[^\n]*{words}[^\n]*$"):
        prepared(net, **settings).load_state(str(tmp_path / "state"))
    assert digest(net) == before


def test_a_state_of_another_model_changes_nothing(tmp_path: Path):
    train(tmp_path / "state", save_at=8, stop=True)
    net = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 4))
    before = digest(net)
    with pytest.raises(PrunerError, match="another model, budget or total_steps"):
        prepared(net).load_state(str(tmp_path / "state"))
    assert digest(net) == before


def test_a_state_without_a_pruner_is_refused(tmp_path: Path):
    accelerator: Any = Accelerator(cpu=True)
    net: nn.Module = make_net()
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    accelerator.save_state(str(tmp_path / "plain"))
    pruner = trainonce.attach(
        model,
        optimizer,
        example=torch.zeros(2, 12),
        keep_flops=0.5,
        total_steps=100,
        policy=trainonce.policies.Uniform(),
    )
    register(accelerator, model, pruner)
    before = [weight.tolist() for weight in net.parameters()]
    with pytest.raises(PrunerError, match="saved without a pruner"):
        accelerator.load_state(str(tmp_path / "plain"))
    assert [weight.tolist() for weight in net.parameters()] == before


def test_one_process_needs_no_wrapper():
    accelerator: Any = Accelerator(cpu=True)
    model = accelerator.prepare(make_net())
    before = dict(vars(model))
    rewrap(accelerator, model)
    assert vars(model) == before


def test_a_wrapper_that_can_not_follow_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainonce.integrations.accelerate.DistributedDataParallel", nn.DataParallel)
    with pytest.raises(PrunerError, match=r"inside torch\.compile"):
        rewrap(Accelerator(cpu=True), torch.compile(nn.DataParallel(make_net()), backend="eager"))
