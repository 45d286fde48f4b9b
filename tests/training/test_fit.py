"""Laws of whole runs.

The budget is kept, going on gives the same bits, what is not finite changes nothing, one run per folder.
"""

import copy
import csv
import json
import os
import random
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import trainonce
from support.runs import (
    Counter,
    Net,
    interrupt,
    make_data,
    make_net,
    make_settings,
    same_weights,
    stop_run,
    weights,
)
from trainonce.errors import FolderInUseError, RunInterruptedError, SettingError
from trainonce.runs.folder import read_config
from trainonce.runs.occupancy import occupied
from trainonce.storage.checkpoint import find_newest
from trainonce.training import fit


def run_whole(out: Path | None = None, **changes):
    return fit(make_net(), make_data(), settings=make_settings(**changes), out=out)


def test_the_small_model_keeps_the_budget_and_says_the_same(tmp_path: Path):
    result = run_whole(tmp_path / "run", epochs=12)
    before, after = result.report["before"], result.report["after"]
    assert after["macs"] <= 0.5 * before["macs"]
    assert after["parameters"] < before["parameters"]
    agreement = result.report["agreement"]
    assert agreement["num_same"] == agreement["num_samples"] == 32
    assert agreement["largest_difference"] < 1e-5
    assert after["top1"] > 50
    assert after["top5"] is None
    again = trainonce.load(tmp_path / "run" / "small", into=Net())
    assert same_weights(again, result.model)
    assert not result.model.training


def test_a_run_leaves_its_folder_in_order(tmp_path: Path):
    result = run_whole(tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names >= {
        "config.yaml",
        "metrics.jsonl",
        "summary.csv",
        "log.txt",
        "env.json",
        "checkpoints",
        "small",
        "report.json",
    }
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert records == list(result.history)
    assert [record["epoch"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert [record["phase"] for record in records][-1] == "small"
    with (tmp_path / "run" / "summary.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["loss"]) for row in rows] == [record["loss"] for record in records]
    assert read_config(tmp_path / "run")["batch_size"] == 16
    samples = json.loads((tmp_path / "run" / "controller_samples.json").read_text())
    assert len(samples) == 3
    assert json.loads((tmp_path / "run" / "report.json").read_text())["history"] == records
    assert "INFO" in (tmp_path / "run" / "log.txt").read_text()


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    first, second, other = run_whole(), run_whole(), run_whole(seed=1)
    assert same_weights(first.model, second.model)
    assert (
        not same_weights(first.model, other.model)
        if weights(first.model).keys() == weights(other.model).keys()
        else True
    )


def test_the_caller_keeps_the_random_state():
    torch.manual_seed(3)
    random.seed(3)
    before, python_before = torch.random.get_rng_state(), random.getstate()
    data, net = make_data(), copy.deepcopy(Net().train())
    torch.random.set_rng_state(before)
    fit(net, data, settings=make_settings(epochs=1, keep_flops=1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert random.getstate() == python_before


# 24 steps: search from 2, shrink from 5, settle from 12, small soon after; 8, 16 and 24 end an epoch.
@pytest.mark.parametrize("steps", [{1}, {4}, {8}, {12}, {13}, {18}, {24}, {3, 4, 15}])
@pytest.mark.parametrize("ema", [False, True])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path: Path, steps: set[int], ema: bool):
    settings = make_settings(model_ema=ema, model_ema_decay=0.9)

    class Whole(Counter):
        pass

    whole = fit(make_net(), make_data(), settings=settings, loss=Whole(set(), interrupt))
    done, calls = 0, sorted(steps)
    result = None
    while result is None:
        # The controller's own losses count as calls, too; what matters is that it stops somewhere about
        # there.
        loss = Counter({calls.pop(0) - done} if calls else set(), interrupt)
        try:
            result = fit(
                make_net(), make_data(), settings=settings, loss=loss, out=tmp_path / "run", resume=True
            )
        except RunInterruptedError:
            done += loss.calls
    assert same_weights(whole.model, result.model)
    timeless = [
        {name: value for name, value in record.items() if name != "seconds"} for record in result.history
    ]
    assert timeless == [
        {name: value for name, value in record.items() if name != "seconds"} for record in whole.history
    ]


def test_a_damaged_checkpoint_costs_nothing_but_time(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    whole = run_whole()
    stop_run(tmp_path / "run", at=22)
    found = find_newest(tmp_path / "run" / "checkpoints")
    (found.path / "state.safetensors").write_bytes(b"")
    result = fit(
        make_net(),
        make_data(),
        settings=make_settings(),
        loss=nn.functional.cross_entropy,
        out=tmp_path / "run",
        resume=True,
    )
    assert sum("a newer one is invalid" in record.getMessage() for record in caplog.records) == 1
    assert same_weights(whole.model, result.model)


def test_a_second_run_into_one_folder_is_refused(tmp_path: Path):
    with occupied(tmp_path / "run"), pytest.raises(FolderInUseError, match=f"process {os.getpid()} on"):
        run_whole(tmp_path / "run")
    run_whole(tmp_path / "run", epochs=2)
    with pytest.raises(SettingError, match="is finished"):
        run_whole(tmp_path / "run", epochs=2)


def test_a_run_that_was_left_is_recognised(tmp_path: Path):
    with pytest.raises(RunInterruptedError, match="resume=True"):
        fit(
            make_net(),
            make_data(),
            settings=make_settings(),
            loss=Counter({2}, interrupt),
            out=tmp_path / "run",
        )
    with pytest.raises(SettingError, match="resume=True"):
        run_whole(tmp_path / "run")
    with pytest.raises(SettingError, match=r"lr is 0\.01, .* started with 0\.05"):
        fit(make_net(), make_data(), settings=make_settings(lr=0.01), out=tmp_path / "run", resume=True)
    assert fit(
        make_net(), make_data(), settings=make_settings(save_epochs=3), out=tmp_path / "run", resume=True
    ).report


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(SettingError, match="has no run in it"):
        run_whole(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_pieces_of_a_batch_give_the_gradient_of_the_batch():
    def plain():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Tanh(), nn.Linear(8, 4)).double()

    (images, labels), validation = make_data()
    data = ((images.double(), labels), (validation[0].double(), validation[1]))
    whole, pieces = (
        fit(plain(), data, settings=make_settings(keep_flops=1, epochs=2, accumulate=count)).model
        for count in (1, 3)
    )
    for one, other in zip(whole.parameters(), pieces.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-12)


class Doubled(Dataset):
    def __init__(self, pair) -> None:
        self.pair = pair

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, index: int):
        return self.pair[0][index], self.pair[1][index]


@pytest.mark.parametrize(
    "wrap", [lambda pair: TensorDataset(*pair), Doubled, lambda pair: DataLoader(Doubled(pair), batch_size=3)]
)
def test_data_may_come_in_any_form(wrap):
    train, validation = make_data()
    settings = make_settings(epochs=2, keep_flops=1)
    plain = fit(make_net(), (train, validation), settings=settings)
    assert same_weights(
        fit(make_net(), (wrap(train), wrap(validation)), settings=settings).model, plain.model
    )


@pytest.mark.parametrize(
    "data", [None, 3, "digits", (1, 2), (make_data()[0],), ((torch.ones(3), torch.ones(2)), make_data()[1])]
)
def test_data_of_no_use_is_refused(data):
    with pytest.raises(SettingError):
        fit(make_net(), data, settings=make_settings())


def test_clipping_averaging_mixing_and_layouts_work_together():
    settings = make_settings(
        clip_grad=0.5,
        model_ema=True,
        model_ema_decay=0.5,
        mixup=0.2,
        cutmix=1.0,
        smoothing=0.1,
        channels_last=True,
        opt="adamw",
        lr=0.01,
    )
    result = fit(make_net(), make_data(), settings=settings)
    assert result.report["after"]["macs"] <= 0.5 * result.report["before"]["macs"]
    assert result.report["agreement"]["num_same"] == 32


def test_compiled_runs_survive_the_cut(monkeypatch: pytest.MonkeyPatch):
    compile_model = torch.compile
    # The compiler itself takes half a minute; what is looked at here is tracing before and after the cut.
    monkeypatch.setattr(torch, "compile", lambda model: compile_model(model, backend="eager"))
    plain, compiled = run_whole(), run_whole(compile=True)
    assert same_weights(plain.model, compiled.model)


def test_parameters_can_be_the_budget():
    result = run_whole(keep_flops=None, keep_params=0.5)
    assert result.report["after"]["parameters"] <= 0.5 * result.report["before"]["parameters"]


def test_own_optimizer_and_short_names():
    result = fit(
        make_net(),
        make_data(),
        keep_flops=0.6,
        epochs=4,
        settings=make_settings(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    )
    assert len(result.history) == 4
    assert result.report["config"]["keep_flops"] == 0.6


def test_a_result_can_be_saved(tmp_path: Path):
    result = run_whole(epochs=3)
    result.save(str(tmp_path / "small"))
    assert same_weights(trainonce.load(tmp_path / "small", into=Net()), result.model)
