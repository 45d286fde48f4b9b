"""The callback in the real Lightning `Trainer`, on a tiny module."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

import trainonce
from support.bits import digest
from support.ranks import run_two
from trainonce.errors import BudgetError, PrunerError, TrainonceError

pytest.importorskip("lightning", reason="needs lightning")

from lightning.pytorch.callbacks import ModelCheckpoint

from integrations.lightning_runs import (
    EPOCHS,
    STEPS,
    CallsItsPart,
    Kill,
    KilledError,
    Net,
    StepsByHand,
    loader,
    make_callback,
    make_trainer,
)
from trainonce.integrations.lightning import TrainOnceCallback, restore

pytestmark = [
    pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning"),
    # Lightning's advice on workers, accelerators and folders.
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    # Lightning 2.6 uses what torch 2.15 has deprecated.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


def macs(model: nn.Module) -> float:
    return trainonce.inspect(model, torch.zeros(2, 12)).macs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Net, TrainOnceCallback, Path]:
    """One undisturbed run."""
    out = tmp_path_factory.mktemp("whole")
    net, callback = Net(), make_callback()
    make_trainer(out, callback).fit(net, loader(), loader(16))
    return net, callback, out


def test_one_argument_gives_a_small_module(whole: Any):
    net, callback, _ = whole
    assert 0.4 * macs(Net()) < macs(net) <= 0.5 * macs(Net())
    assert len(callback.pruner.cuts) == 2
    assert callback.pruner.model is net
    assert callback.pruner.num_steps == STEPS
    assert "on_load_checkpoint" not in vars(net), "nothing of ours stays in the module"


def test_accumulated_batches_are_one_step(tmp_path: Path):
    net, callback = Net(), make_callback()
    make_trainer(tmp_path, callback, max_epochs=2 * EPOCHS, accumulate_grad_batches=2).fit(net, loader())
    assert callback.pruner.num_steps == STEPS
    assert macs(net) <= 0.5 * macs(Net())


@pytest.mark.parametrize("killed_in", [1, 2, 3])
def test_a_killed_run_resumes_to_the_same_bits(whole: Any, tmp_path: Path, killed_in: int):
    net = Net()
    with pytest.raises(KilledError):
        make_trainer(tmp_path, make_callback(), Kill(killed_in)).fit(net, loader(), loader(16))
    resumed, callback = Net(), make_callback()
    make_trainer(tmp_path, callback).fit(
        resumed,
        loader(),
        loader(16),
        ckpt_path=str(tmp_path / f"epoch={killed_in - 1}.ckpt"),
        weights_only=True,
    )
    assert callback.pruner.num_steps == STEPS
    assert digest(resumed) == digest(whole[0])


def test_a_part_is_found_without_a_forward(tmp_path: Path):
    net, callback = CallsItsPart(), make_callback()
    make_trainer(tmp_path, callback).fit(net, loader())
    assert callback.pruner.model is net.layers
    assert macs(net.layers) <= 0.5 * macs(Net().layers)
    again = CallsItsPart()
    make_trainer(tmp_path, make_callback()).fit(
        again, loader(), ckpt_path=str(tmp_path / "epoch=2.ckpt"), weights_only=True
    )
    assert digest(again) == digest(net)


def test_a_part_that_has_not_all_weights_is_named(tmp_path: Path):
    class TwoParts(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            points, labels = batch
            return cross_entropy(self.layers[5](self.layers[:5](points)), labels)

    with pytest.raises(PrunerError, match=re.escape("TrainOnceCallback(module='layers.0')")):
        make_trainer(tmp_path, make_callback()).fit(TwoParts(), loader())
    with pytest.raises(PrunerError, match="has no part 'layer'"):
        make_trainer(tmp_path, make_callback(module="layer")).fit(Net(), loader())
    with pytest.raises(PrunerError, match="does not call module='layers'"):
        make_trainer(tmp_path, make_callback(module="layers")).fit(TwoParts(), loader())


def test_steps_by_hand(tmp_path: Path):
    def loss(module: Any, batch: Any) -> Any:
        points, labels = batch
        return cross_entropy(module(points), labels)

    with pytest.raises(PrunerError, match="with manual optimization"):
        make_trainer(tmp_path, make_callback()).fit(StepsByHand(), loader())
    net, callback = StepsByHand(), make_callback(loss=loss, total_steps=2 * STEPS)
    make_trainer(tmp_path, callback).fit(net, loader())
    assert callback.pruner.num_steps == 2 * STEPS
    assert macs(net) <= 0.5 * macs(Net())


def test_the_controllers_losses_are_not_logged(tmp_path: Path):
    logged = []

    class Noting(Net):
        def log(self, name: str, value: Any, **options: Any) -> None:
            logged.append(name)

    make_trainer(tmp_path, make_callback()).fit(Noting(), loader())
    assert [name for name in logged if name != "keep_flops"] == ["loss"] * STEPS


def test_the_best_checkpoint_is_a_small_one(tmp_path: Path):
    class Worsening(Net):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("score", float(self.current_epoch))

    net = Worsening()
    best = ModelCheckpoint(tmp_path / "best", monitor="score", mode="min", filename="{epoch}")
    make_trainer(tmp_path, make_callback(), best).fit(net, loader(), loader(16))
    assert Path(best.best_model_path).name == "epoch=2.ckpt", "the first after the last cut"
    saved = torch.load(best.best_model_path, weights_only=True)
    assert {name: tensor.shape for name, tensor in saved["state_dict"].items()} == {
        name: tensor.shape for name, tensor in net.state_dict().items()
    }


@pytest.mark.parametrize("only_weights", [False, True])
def test_a_checkpoint_loads_elsewhere(whole: Any, tmp_path: Path, only_weights: bool):
    class Restored(Net):
        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            restore(self, checkpoint)

    net, _, out = whole
    path = out / f"epoch={EPOCHS - 1}.ckpt"
    if only_weights:
        net, path = Net(), tmp_path / f"epoch={EPOCHS - 1}.ckpt"
        make_trainer(tmp_path, make_callback(), only_weights=True).fit(net, loader(), loader(16))
    loaded = Restored.load_from_checkpoint(path, weights_only=True)
    assert digest(loaded) == digest(net)
    with pytest.raises(RuntimeError, match="size mismatch"):
        Net.load_from_checkpoint(path, weights_only=True)
    make_trainer(tmp_path / "test", make_callback()).validate(
        Net(), loader(), ckpt_path=path, weights_only=True
    )


def test_a_loaded_module_can_be_pruned_further(whole: Any, tmp_path: Path):
    net = copy.deepcopy(whole[0])
    before = macs(net)
    make_trainer(tmp_path, make_callback(keep_flops=0.8)).fit(net, loader())
    assert macs(net) <= 0.8 * before


def test_two_processes_train_one_small_module_and_resume_it(tmp_path: Path):
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    run_two(Path(__file__).with_name("lightning_runs.py"), str(tmp_path))
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["whole"]["share"] <= 0.5
    assert (first["whole"]["cuts"], first["whole"]["steps"]) == (2, STEPS)
    assert first["from 0"] == first["from 2"] == first["whole"]


def test_bad_input_is_refused_in_one_line(whole: Any, tmp_path: Path):
    with pytest.raises(TrainonceError, match="keep_flops or keep_params"):
        TrainOnceCallback()
    with pytest.raises(PrunerError, match="Did you mean keep_flops"):
        TrainOnceCallback(keep_flop=0.5)
    net = Net()
    before = digest(net)
    with pytest.raises(BudgetError):
        make_trainer(tmp_path, make_callback(keep_flops=0.001)).fit(net, loader())
    with pytest.raises(PrunerError, match="length of this run is not known"):
        make_trainer(tmp_path, make_callback(), max_epochs=-1).fit(net, loader())
    with pytest.raises(PrunerError, match="of another model"):
        make_trainer(tmp_path, make_callback()).fit(
            Net(width=20), loader(), ckpt_path=str(whole[2] / "epoch=3.ckpt"), weights_only=True
        )
    make_trainer(tmp_path / "plain").fit(Net(), loader())
    with pytest.raises(PrunerError, match="saved without TrainOnceCallback"):
        make_trainer(tmp_path, make_callback()).fit(
            net, loader(), ckpt_path=str(tmp_path / "plain" / "epoch=0.ckpt"), weights_only=True
        )
    with pytest.raises(PrunerError, match="this checkpoint is damaged"):
        restore(net, {"trainonce": 7, "state_dict": {}})
    for changes, length, words in (
        (
            {"keep_flops": 0.6},
            {},
            "is from a run with keep_flops=0.5, total_steps=32, and this one has keep_flops=0.6",
        ),
        ({}, {"max_steps": 40}, "and this one has total_steps=40"),
    ):
        with pytest.raises(PrunerError, match=words):
            make_trainer(tmp_path, make_callback(**changes), **length).fit(
                net, loader(), ckpt_path=str(whole[2] / "epoch=3.ckpt"), weights_only=True
            )
    assert digest(net) == before


def test_a_run_that_is_stopped_early_says_so(tmp_path: Path):
    with pytest.raises(PrunerError, match=f"after 8 of {STEPS} steps"):
        make_trainer(tmp_path, make_callback(total_steps=STEPS), max_epochs=1).fit(Net(), loader())


def test_a_callback_prunes_once(whole: Any, tmp_path: Path):
    with pytest.raises(PrunerError, match=f"has pruned for {STEPS} steps already"):
        make_trainer(tmp_path, whole[1]).fit(whole[0], loader())
