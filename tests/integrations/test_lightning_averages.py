"""Lightning's own averages are cut with the module, and a resumed run ends in the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

pytest.importorskip("lightning", reason="needs lightning")

from lightning.pytorch.callbacks import EMAWeightAveraging, StochasticWeightAveraging

from integrations.lightning_runs import STEPS, Kill, KilledError, Net, loader, make_callback, make_trainer
from support.bits import digest

pytestmark = [
    pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning"),
    # Lightning's advice on workers, accelerators and folders.
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    # Lightning 2.6 uses what torch 2.15 has deprecated.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    # Stochastic averaging counts its schedule from the end of the run.
    pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning"),
]


class WithoutNorm(Net):
    def __init__(self) -> None:
        super().__init__()
        self.layers[1] = nn.Identity()


def stochastic() -> StochasticWeightAveraging:
    return StochasticWeightAveraging(1e-2, swa_epoch_start=1, annealing_epochs=2)


KINDS: dict[str, Any] = {
    "ema": (Net, lambda: EMAWeightAveraging(decay=0.8), 3),
    "ema, late": (Net, lambda: EMAWeightAveraging(decay=0.8, update_starting_at_step=STEPS - 4), 2),
    "swa": (WithoutNorm, stochastic, 2),
    "swa with batch norm": (Net, stochastic, 4),
}
"""What is trained, its average, the epoch in which it is killed; batch norm is measured in a fifth one."""


def fit(kind: str, out: Path, *others: Any, is_first: bool, **options: Any) -> tuple[Any, Any, Any]:
    """The module, the average's callback and ours."""
    build, make_average, _ = KINDS[kind]
    net, average, ours = build(), make_average(), make_callback()
    both = [ours, average] if is_first else [average, ours]
    make_trainer(out, *both, *others).fit(net, loader(), loader(16), **options)
    return net, average, ours


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_average_is_cut_and_resumed_to_the_same_bits(tmp_path: Path, kind: str):
    net, average, ours = fit(kind, tmp_path / "whole", is_first=False)
    assert ours.pruner.num_steps == ours.pruner.total_steps == STEPS, "an epoch that trains nothing counted"
    assert len(ours.pruner.cuts) == 2
    inner = getattr(average._average_model, "module", average._average_model)
    # At the end Lightning puts the average into the module.
    assert all(map(_is_same, inner.parameters(), net.parameters()))
    assert net.layers[0].out_features < 16
    killed_in = KINDS[kind][2]
    with pytest.raises(KilledError):
        fit(kind, tmp_path / "killed", Kill(killed_in), is_first=True)
    path = tmp_path / "killed" / f"epoch={killed_in - 1}.ckpt"
    resumed, *_ = fit(kind, tmp_path / "killed", is_first=True, ckpt_path=str(path), weights_only=True)
    assert digest(resumed) == digest(net)


def _is_same(one: Any, other: Any) -> bool:
    return one.shape == other.shape and bool((one == other).all())
