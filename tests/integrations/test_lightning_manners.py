"""What else a Lightning training has: GANs, metrics, early stopping, tuners, and the package's other name."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from support.bits import digest
from trainonce.errors import PrunerError

pytest.importorskip("lightning", reason="needs lightning")

from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
    ModelPruning,
)
from torchmetrics import MeanMetric

from integrations.lightning_runs import BATCHES, EPOCHS, STEPS, Net, loader, make_callback, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning"),
    # Lightning's advice on workers, accelerators and folders.
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning"),
    # Lightning 2.6 uses what torch 2.15 has deprecated.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


class Gan(LightningModule):
    """Two optimizers, toggled as in Lightning's own example."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.generator.append(nn.Linear(24, 12))
        self.judge = nn.Sequential(nn.Linear(12, 24), nn.LeakyReLU(), nn.Linear(24, 1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        of_generator, of_judge = self.optimizers()
        points = batch[0]
        self.toggle_optimizer(of_judge)
        made = self.generator(torch.randn(len(points), 6)).detach()
        self.manual_backward(softplus(-self.judge(points)).mean() + softplus(self.judge(made)).mean())
        of_judge.step()
        of_judge.zero_grad()
        self.untoggle_optimizer(of_judge)
        self.toggle_optimizer(of_generator)
        self.manual_backward(fooled(self, batch))
        of_generator.step()
        of_generator.zero_grad()
        self.untoggle_optimizer(of_generator)

    def configure_optimizers(self) -> Any:
        return tuple(torch.optim.Adam(part.parameters(), 1e-3) for part in (self.generator, self.judge))


def fooled(module: Any, batch: Any) -> Tensor:
    return softplus(-module.judge(module.generator(torch.randn(len(batch[0]), 6)))).mean()


def test_one_half_of_a_gan_becomes_small(tmp_path: Path):
    gan, callback = Gan(), make_callback(module="generator", loss=fooled)
    make_trainer(tmp_path, callback).fit(gan, loader())
    assert callback.pruner.num_steps == STEPS
    assert callback.pruner.keep_now <= 0.5
    assert gan.generator[0].out_features < 24
    assert gan.judge[0].out_features == 24
    assert all(weight.requires_grad for weight in gan.parameters())


def test_which_half_has_to_be_said(tmp_path: Path):
    gan = Gan()
    before = digest(gan)
    with pytest.raises(PrunerError, match=r"lacks some of the weights in training.*name the part"):
        make_trainer(tmp_path, make_callback(loss=fooled)).fit(gan, loader())
    assert digest(gan) == before


def test_the_controllers_steps_leave_no_trace(tmp_path: Path):
    class Counting(Net):
        def __init__(self) -> None:
            super().__init__()
            self.mean = MeanMetric()
            self.losses: list[Tensor] = []
            self.num_calls = 0

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = super().training_step(batch, batch_idx)
            self.num_calls += 1
            self.losses.append(loss.detach())
            self.mean.update(torch.ones(len(batch[0])))
            return loss

    net = Counting()
    make_trainer(tmp_path, make_callback()).fit(net, loader())
    assert net.num_calls == len(net.losses) == STEPS
    assert net.mean.update_count == STEPS
    assert net.mean.weight == 64 * EPOCHS


class Points(LightningDataModule):
    batch_size = 8

    def train_dataloader(self) -> Any:
        return loader()

    def val_dataloader(self) -> Any:
        return loader(16)


def test_two_callbacks_and_tuners_are_refused_before_a_step(tmp_path: Path):
    for others, words in (
        ([make_callback()], "this trainer has two TrainOnceCallbacks"),
        ([LearningRateFinder()], "LearningRateFinder trains the module to try things out"),
        ([BatchSizeFinder()], "BatchSizeFinder trains the module to try things out"),
    ):
        net = Net()
        before = digest(net)
        with pytest.raises(PrunerError, match=rf"^{words}[^\n]*$"):
            make_trainer(tmp_path, make_callback(), *others).fit(net, datamodule=Points())
        assert digest(net) == before


def test_another_way_of_pruning_is_refused_before_a_step(tmp_path: Path):
    net = Net()
    before = digest(net)
    with pytest.raises(PrunerError, match="ModelPruning keeps a mask for each weight"):
        make_trainer(tmp_path, make_callback(), ModelPruning("l1_unstructured", amount=0.1)).fit(
            net, loader()
        )
    assert digest(net) == before


@pytest.mark.filterwarnings("ignore:training_step.*returned.*None")
@pytest.mark.filterwarnings("ignore:the controller's loss is not finite")
def test_batches_that_training_skips_are_skipped_by_the_controller(tmp_path: Path):
    class Choosy(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx % 3 == 1 else super().training_step(batch, batch_idx)

    net, callback = Choosy(), make_callback()
    make_trainer(tmp_path, callback).fit(net, loader())
    assert callback.pruner.num_steps == STEPS
    assert callback.pruner.keep_now <= 0.5


def test_steps_are_counted_where_accumulation_changes(tmp_path: Path):
    net, callback = Net(), make_callback()
    scheduler = GradientAccumulationScheduler({0: 1, 1: 2, 3: 8})
    make_trainer(tmp_path, callback, scheduler).fit(net, loader())
    assert callback.pruner.num_steps == callback.pruner.total_steps == 8 + 4 + 4 + 1
    assert callback.pruner.keep_now <= 0.5


def test_early_stopping_waits_for_the_last_cut(tmp_path: Path):
    class Worsening(Net):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("score", float(self.global_step))

    callback, stopping = make_callback(), EarlyStopping("score", patience=1)
    trainer = make_trainer(tmp_path, callback, stopping, max_epochs=2 * EPOCHS, val_check_interval=2)
    trainer.fit(Worsening(), loader(), loader(16))
    cut_at = 17
    assert callback.pruner.shrunk
    assert cut_at <= trainer.global_step <= cut_at + BATCHES


def test_a_checkpoint_of_another_length_changes_nothing(tmp_path: Path):
    make_trainer(tmp_path, make_callback()).fit(Net(), loader())
    net = Net()
    before = digest(net)
    with pytest.raises(PrunerError, match=f"a run with {EPOCHS} epochs, and this one has 9"):
        make_trainer(tmp_path, make_callback(), max_epochs=9).fit(
            net, loader(), ckpt_path=str(tmp_path / "epoch=3.ckpt"), weights_only=True
        )
    assert digest(net) == before


def test_the_share_is_logged_and_every_cut_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    shares: list[float] = []

    class Reading(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
            shares.append(float(trainer.callback_metrics["keep_flops"]))

    callback = make_callback()
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    with caplog.at_level(logging.INFO, logger=logger.name):
        make_trainer(tmp_path, callback, Reading(), log_every_n_steps=1).fit(Net(), loader())
    assert len(shares) == EPOCHS
    assert shares[-1] == pytest.approx(callback.pruner.keep_now)
    told = [record.getMessage() for record in caplog.records if "trainonce: " in record.getMessage()]
    assert [words[:24] for words in told] == ["trainonce: Pruner(search", "trainonce: Pruner(small,"]


def test_the_packages_other_name_works(tmp_path: Path):
    other = pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning")

    class Worsening(other.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = Net().layers

        def forward(self, points: Tensor) -> Tensor:
            return self.layers(points)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("score", float(self.current_epoch))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    best = other.callbacks.ModelCheckpoint(tmp_path, monitor="score", mode="min", filename="{epoch}")
    average = other.callbacks.EMAWeightAveraging(decay=0.9)
    callback, module = make_callback(), Worsening()
    other.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[callback, best, average],
    ).fit(module, loader(), loader(16))
    assert callback.pruner.shrunk
    assert not isinstance(best, ModelCheckpoint), "two classes of one name"
    assert Path(best.best_model_path).name == "epoch=2.ckpt", "the first after the last cut"
