"""A model that was cut can be trained and cut again, and loads into the model that the user's code builds."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

import trainonce
from support.runs import Net, make_data, make_net, make_settings, same_weights, stop_run
from trainonce.surgery.slicing import plans_of
from trainonce.training import fit


@pytest.mark.parametrize(
    "budgets",
    [(0.6, 0.6), (0.6, 1.0), (1.0, 0.6), (0.6, 1.0, 0.7), (0.7, 0.7, 0.8), (1.0, 1.0, 0.5)],
    ids=lambda budgets: str(budgets),
)
def test_several_runs_in_a_row(budgets: tuple[float, ...], tmp_path: Path):
    model: nn.Module = make_net()
    for number, budget in enumerate(budgets):
        out = tmp_path / str(number)
        result = fit(
            model, make_data(), settings=make_settings(epochs=4, keep_flops=budget), out=out, quiet=True
        )
        before, after = result.report["before"], result.report["after"]
        assert result.report["missing"] == {}
        assert after["macs"] <= budget * before["macs"]
        if budget < 1:
            assert result.report["agreement"]["num_same"] == 32
            assert result.report["agreement"]["largest_difference"] < 1e-5
            assert all(layer["alive"] <= layer["total"] for layer in result.report["layers"])
            widths = {
                layer["name"]: layer["alive"]
                for layer in result.report["layers"]
                if layer["kept_because"] is None
            }
            assert widths["body.0"] == result.model.body[0].out_channels
        else:
            assert result.report["agreement"] is None
            assert after["macs"] == before["macs"]
        assert same_weights(trainonce.load(out / "small", into=Net()), result.model)
        model = result.model
    assert len(plans_of(model)) >= sum(budget < 1 for budget in budgets)


def test_a_loaded_model_trains_on(tmp_path: Path):
    fit(make_net(), make_data(), settings=make_settings(epochs=4), out=tmp_path / "first", quiet=True)
    loaded = trainonce.load(tmp_path / "first" / "small", into=Net())
    result = fit(
        loaded,
        make_data(),
        settings=make_settings(epochs=4, keep_flops=0.8),
        out=tmp_path / "second",
        quiet=True,
    )
    assert result.report["agreement"]["num_same"] == 32
    assert same_weights(trainonce.load(tmp_path / "second" / "small", into=Net()), result.model)


def test_the_second_run_of_a_cut_model_goes_on_to_the_same_bits(tmp_path: Path):
    def small() -> nn.Module:
        return fit(make_net(), make_data(), settings=make_settings(epochs=4), quiet=True).model

    settings = make_settings(epochs=4, keep_flops=0.8)
    whole = fit(small(), make_data(), settings=settings, quiet=True).model
    stop_run(tmp_path / "run", at=12, net=small(), settings=settings)
    result = fit(small(), make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True)
    assert same_weights(result.model, whole)
    assert same_weights(trainonce.load(tmp_path / "run" / "small", into=Net()), whole)


def test_going_on_with_a_model_that_the_stopped_run_has_cut_says_what_to_do(tmp_path: Path):
    net, settings = make_net(), make_settings()
    stop_run(tmp_path / "run", at=20, net=net, settings=settings)
    assert plans_of(net)
    with pytest.raises(ValueError, match="and a newly built model") as caught:
        fit(net, make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True)
    assert "\n" not in str(caught.value)
    assert fit(
        make_net(), make_data(), settings=settings, out=tmp_path / "run", resume=True, quiet=True
    ).report


def test_an_averaged_model_can_be_cut_twice(tmp_path: Path):
    model: nn.Module = make_net()
    for number in range(2):
        settings = make_settings(epochs=4, keep_flops=0.7, model_ema=True, model_ema_decay=0.5)
        result = fit(model, make_data(), settings=settings, out=tmp_path / str(number), quiet=True)
        assert result.report["agreement"]["num_same"] == 32
        model = result.model
    assert same_weights(trainonce.load(tmp_path / "1" / "small", into=Net()), model)
    assert all(parameter.requires_grad for parameter in model.parameters())
