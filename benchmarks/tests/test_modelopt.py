"""ModelOpt is measured in its own environment by what its small models compute; a stand-in is used here."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

pytest.importorskip("timm", reason="pip install -e '.[zoo]'")

from benchmarks.__main__ import main
from benchmarks.coverage import progress
from benchmarks.coverage.children import Limits, measure_parts
from benchmarks.coverage.modelopt import MISSING, PYTHON, meets_budget, write_page
from benchmarks.coverage.progress import Measured
from benchmarks.coverage.suites import Subject, list_models, list_some
from benchmarks.coverage.zeroing import zero_all_but
from benchmarks.figures import look_up, read_figures

CIRCUMSTANCES = {"versions": {"nvidia-modelopt": "0.0.1"}, "date": "2026-01-01", "threads": 1}
GOOD = {"num_widths": 3, "by_hand": False, "left_share": 0.49, "removed_parameters": 0.4}
GOOD |= {"usable": True, "problem": None, "difference": 1e-7, "exact": True, **CIRCUMSTANCES}


def narrowed(layer: Any, outputs: Tensor | None, inputs: Tensor | None, *, axis: int = 0) -> nn.Module:
    """A plain layer with these outputs and inputs of another, sliced by hand."""
    weight = layer.weight.detach()
    weight = weight if outputs is None else weight.index_select(axis, outputs)
    weight = weight if inputs is None else weight.index_select(1 - axis, inputs)
    layer.weight = nn.Parameter(weight)
    layer.bias = nn.Parameter(layer.bias.detach() if outputs is None else layer.bias.detach()[outputs])
    if isinstance(layer, nn.BatchNorm2d) and outputs is not None:
        layer.running_mean, layer.running_var = layer.running_mean[outputs], layer.running_var[outputs]
    return layer


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    up = nn.ConvTranspose2d(6, 5, 2)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), up, nn.ReLU(), nn.Conv2d(5, 2, 1))
    norm: Any = net[1]
    nn.init.uniform_(norm.bias, 0.5, 1.0)
    norm.running_mean.uniform_(-1, 1)
    return net.eval()


def test_a_zeroed_model_is_the_sliced_one():
    first, second = torch.tensor([4, 0, 3]), torch.tensor([1, 2])
    images = torch.randn(2, 3, 8, 8)
    sliced, zeroed = small_net(), small_net()
    narrowed(sliced[0], first, None)
    narrowed(sliced[1], first, None)
    narrowed(sliced[3], second, first, axis=1)
    narrowed(sliced[5], None, second)
    assert not torch.allclose(sliced(images), zeroed(images), atol=1e-3)
    # Without the norm its bias would go on as if the channels were there.
    assert zero_all_but(zeroed, {"0": first, "3": second})
    assert not torch.allclose(sliced(images), zeroed(images), atol=1e-3)
    assert zero_all_but(zeroed, {"1": first})
    torch.testing.assert_close(sliced(images), zeroed(images))


@pytest.mark.parametrize("layer", [nn.PReLU(4), nn.ConvTranspose2d(4, 4, 1, groups=2)])
def test_layers_whose_outputs_are_not_known_are_said(layer: nn.Module):
    assert not zero_all_but(nn.Sequential(layer), {"0": torch.tensor([0])})


def test_a_part_of_a_suite_has_one_model_of_each_kind():
    whole, some = list_models("torchvision"), list_some("torchvision")
    assert set(some) < set(whole)
    rooms = [models.get_model_builder(one.source.partition(":")[2]).__module__ for one in some]
    assert sorted(rooms) == sorted(set(rooms))
    everywhere = {models.get_model_builder(one.source.partition(":")[2]).__module__ for one in whole}
    assert set(rooms) == everywhere
    assert "torchvision:resnet18" in [one.source for one in some]
    assert list_some("transformers") == list_models("transformers")


def test_only_its_own_search_can_meet_a_budget():
    assert meets_budget(GOOD)
    assert not meets_budget({**GOOD, "left_share": 0.502})
    assert not meets_budget({**GOOD, "by_hand": True})
    assert not meets_budget({"failure": "no model"})
    assert meets_budget(GOOD, 0.49)
    assert meets_budget(GOOD, 0.4895)
    assert not meets_budget(GOOD, 0.48)


def test_the_sheet_counts_what_was_found(tmp_path: Path):
    unknown = {**GOOD, "difference": None, "exact": False}
    wrong = {**GOOD, "difference": 0.2, "exact": False, "by_hand": True, "search_failure": "no | counter"}
    failed = {"failure": "after build: ValueError: no", **CIRCUMSTANCES}
    found = {"a": GOOD, "b": unknown, "c": wrong, "d": failed}
    measured = [
        Measured(Subject("timm", f"timm:{name}", ""), {"fastnas": facts}) for name, facts in found.items()
    ]
    for name, share in (("x@0.5", 0.495), ("x@0.8", 0.7), ("x@0.2", 0.21)):
        facts = {**CIRCUMSTANCES, "left_share": share, "any_width": True}
        measured.append(Measured(Subject("budget", f"budget:{name}", ""), {"fastnas_budget": facts}))
    write_page(tmp_path / "modelopt.md", measured, seconds=60)
    page = (tmp_path / "modelopt.md").read_text()
    for line in (
        "2026-01-01; nvidia-modelopt 0.0.1; ",
        "A model has 60 seconds",
        "| timm | 4 | 3 | 3 / 1 | 2 of 2 | 1 |",
        "| b | 3 | yes | ? | - | 49% | 40% | yes | - |  |",
        "| c | 3 | yes | no | 2e-01 | 49% *h* | 40% | no | - | no / counter |",
        "| d | - | no | no | - | - | - | no | - | after build: ValueError: no |",
        "| at or below the budget | 2 of 3 |",
        "| at or below, and within 1 % of the model | 1 of 3 |",
        "| x | 0.2 | 0.2100 *d* | NO |  |",
    ):
        assert line in page
    cell = "<!-- modelopt > timm > usable / exact @ after the slash -->?<!--/-->"
    assert [look_up(figure, tmp_path) for figure in read_figures(cell)] == ["1"]


def test_the_peer_runs_in_its_environment_and_is_not_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(progress, "CACHE", tmp_path / "cache")
    python, out = tmp_path / "python", tmp_path / "modelopt.md"
    words = ["modelopt", "--suite", "transformers", "--only", "BertModel", "--out", str(out)]
    words += ["--modelopt-python", str(python)]
    assert main(words) == 2
    assert MISSING in capsys.readouterr().err
    report = json.dumps({"part": "fastnas", "stage": "done", **GOOD})
    python.write_text(f'#!/bin/sh\necho \'{report}\' >"$4"\necho "$3" >>{tmp_path}/asked\n')
    python.chmod(0o755)
    for _ in range(2):
        assert main(words) == 0
        assert "| BertModel | 3 | yes | yes | 1e-07 | 49% | 40% | yes | - |  |" in out.read_text()
    assert (tmp_path / "asked").read_text() == "transformers:BertModel\n"


@pytest.mark.timeout(0)
@pytest.mark.skipif(not PYTHON.exists(), reason="make modelopt")
def test_a_plain_network_is_cut_exactly():
    found = measure_parts(
        "torchvision:squeezenet1_1", ["fastnas"], Limits(seconds=3000, cpu_seconds=200, python=PYTHON)
    )["fastnas"]
    assert found.get("failure") is None
    assert found["usable"]
    assert found["difference"] <= 1e-5
    assert 0 < found["left_share"] < 1


def test_a_child_that_computes_for_too_long_is_ended_and_one_that_waits_is_not(tmp_path: Path):
    python = tmp_path / "python"
    begun = json.dumps({"part": "fastnas", "stage": "after build"})
    limits = Limits(seconds=60, cpu_seconds=1, python=python)
    endings = {"while :; do :; done": "time limit of 1 CPU s after build", "sleep 2": "process ended with 0"}
    for work, ending in endings.items():
        python.write_text(f"#!/bin/sh\necho '{begun}' >\"$4\"\n{work}\n")
        python.chmod(0o755)
        assert measure_parts("x", ["fastnas"], limits)["fastnas"]["failure"].startswith(ending)
