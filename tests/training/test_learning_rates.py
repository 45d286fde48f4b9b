"""An optimizer that `fit` is given keeps its own learning rates, each scaled by the schedule.

Going on gives the same rates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support.runs import Counter, Listener, interrupt, make_data, make_net, make_settings, same_weights
from trainonce.errors import CheckpointError, RunInterruptedError, SettingError
from trainonce.runs.folder import read_config
from trainonce.training import fit
from trainonce.training.loop.learning_rate import Rates, learning_rate


class Watched(torch.optim.AdamW):
    """Remembers the rates of every step."""

    def __init__(self, parameters: Any, **options: Any) -> None:
        self.seen: list[list[float]] = []
        super().__init__(parameters, **options)

    def step(self, closure: Any = None) -> Any:
        self.seen.append([float(group["lr"]) for group in self.param_groups])
        return super().step(closure)


def two_groups(parameters: Any) -> Watched:
    every = list(parameters)
    return Watched([{"params": every[:4], "lr": 1e-3}, {"params": every[4:], "lr": 4e-4}])


def run(make: Any, out: Path | None = None, **options: Any):
    settings = make_settings(**({"epochs": 4, "warmup_epochs": 1.0, "lr": 0.1} | options.pop("changes", {})))
    return fit(
        make_net(), make_data(), settings=settings, optimizer=make, out=out, **({"quiet": True} | options)
    )


@pytest.mark.parametrize(
    "changes", [{}, {"min_lr": 1e-4}, {"sched": "constant"}, {"sched": "step", "decay_epochs": (2.0, 3.0)}]
)
def test_every_group_keeps_its_own_rate_scaled_by_the_schedule(changes: dict[str, Any]):
    made: list[Watched] = []
    result = run(lambda parameters: made.append(two_groups(parameters)) or made[0], changes=changes)
    settings = make_settings(**({"epochs": 4, "warmup_epochs": 1.0, "lr": 1e-3} | changes))
    wanted = [learning_rate(settings, step, 4) for step in range(16)]
    assert [rates[0] for rates in made[0].seen] == wanted
    assert [rates[1] for rates in made[0].seen] == pytest.approx([0.4 * rate for rate in wanted])
    assert [record["lr"] for record in result.history] == wanted[3::4]
    assert max(wanted) == pytest.approx(1e-3, rel=0.2)
    # Afterwards the optimizer is as it was made: it may train again.
    assert [group["lr"] for group in made[0].param_groups] == [1e-3, 4e-4]


def test_the_same_rate_from_settings_and_from_an_optimizer_is_the_same_run():
    settings = make_settings(opt="adamw", lr=2e-3, weight_decay=0.01, epochs=4)
    named = fit(make_net(), make_data(), settings=settings, quiet=True)
    own = run(
        lambda parameters: torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.01),
        changes={"warmup_epochs": 0.0},
    )
    assert same_weights(named.model, own.model)
    assert [record["lr"] for record in named.history] == [record["lr"] for record in own.history]


@pytest.mark.parametrize("stop", [2, 9, 14])
def test_going_on_gives_the_same_rates_and_bits(stop: int, tmp_path: Path):
    whole, parts = [], []
    result = run(lambda parameters: whole.append(two_groups(parameters)) or whole[-1])
    make = lambda parameters: parts.append(two_groups(parameters)) or parts[-1]  # noqa: E731
    with pytest.raises(RunInterruptedError):
        run(make, tmp_path / "run", loss=Counter({stop}, interrupt))
    again = run(make, tmp_path / "run", resume=True)
    assert same_weights(result.model, again.model)
    assert [rates for optimizer in parts for rates in optimizer.seen] == whole[0].seen


def test_a_run_goes_on_with_the_optimizer_it_began_with(tmp_path: Path):
    adam = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)  # noqa: E731
    with pytest.raises(RunInterruptedError):
        run(adam, tmp_path / "run", loss=Counter({5}, interrupt))
    with pytest.raises(SettingError, match=r"lr is 0\.002, .* started with 0\.001"):
        run(lambda parameters: torch.optim.AdamW(parameters, lr=2e-3), tmp_path / "run", resume=True)
    with pytest.raises(CheckpointError, match=r"trained by 'AdamW', and the optimizer is SGD"):
        run(lambda parameters: torch.optim.SGD(parameters, lr=1e-3), tmp_path / "run", resume=True)


def test_what_did_not_count_is_said_and_not_written_down(tmp_path: Path):
    view = Listener()
    make = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)  # noqa: E731
    result = run(make, tmp_path / "run", changes={"lr": 0.05}, view=view, quiet=False)
    assert "using the optimizer's learning rate 0.001, not lr=0.05 from the settings" in view.lines
    config = read_config(tmp_path / "run")
    assert config["lr"] == 1e-3
    assert not {"opt", "momentum", "nesterov", "weight_decay"} & config.keys()
    assert result.report["optimizer"] == "AdamW"


@pytest.mark.parametrize("has_scheduler", [False, True])
def test_a_scheduler_that_is_not_stepped_is_said(has_scheduler: bool):
    model, view = make_net(), Listener()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if has_scheduler:
        torch.optim.lr_scheduler.StepLR(optimizer, 10)
    fit(model, make_data(), settings=make_settings(epochs=1, keep_flops=1), optimizer=optimizer, view=view)
    said = "fit does not step the scheduler made for this optimizer: the learning rate starts at 0.001"
    assert any(said in line for line in view.lines) == has_scheduler


def test_an_optimizer_itself_is_taken_if_it_trains_this_model():
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    settings = make_settings(epochs=2, keep_flops=1)
    mine = fit(net, make_data(), settings=settings, optimizer=optimizer, quiet=True)
    made = fit(
        make_net(),
        make_data(),
        settings=settings,
        optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3),
        quiet=True,
    )
    assert same_weights(mine.model, made.model)
    with pytest.raises(SettingError, match=r"AdamW has parameters that are not the model's"):
        fit(make_net(), make_data(), settings=settings, optimizer=optimizer, quiet=True)


def test_rates_in_tensors_stay_tensors():
    rate = torch.tensor(0.5)
    optimizer = torch.optim.AdamW(nn.Linear(2, 2).parameters(), lr=rate)
    rates = Rates(optimizer)
    rates.set(0.125)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rates.now == float(rate) == 0.125


def test_a_rate_of_zero_is_refused():
    with pytest.raises(SettingError, match="learning rate is 0\\. Use one above 0"):
        run(lambda parameters: torch.optim.SGD(parameters, lr=0.0))


@pytest.mark.parametrize("rate", [{}, {"lr": None}])
def test_an_optimizer_without_a_rate_is_refused(rate: dict[str, Any]):
    class Rateless(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, rate)

    with pytest.raises(
        SettingError,
        match=r"this Rateless has no learning rate to schedule\. Give each of its parameter groups",
    ):
        run(Rateless)
