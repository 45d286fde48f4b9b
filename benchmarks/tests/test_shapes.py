"""Shapes at equal FLOPs.

Each meets the budget, a larger exponent moves weights to late layers, the sheet says what was found.
"""

import inspect
import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("matplotlib", reason="pip install -e '.[dev]'")

from benchmarks.__main__ import main
from benchmarks.accuracy import configuration as places
from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.accuracy.fingerprint import fingerprint
from benchmarks.flops import count_image_macs, count_parameters
from benchmarks.resnet import build_resnet
from benchmarks.shapes.catalogue import EXPONENTS, SHAPES, TRUNKS, shape_name
from trainonce.pruning.policies import Capacity

EXAMPLE = torch.zeros(1, 3, 32, 32)


def shaped(name: str, keep: float):
    return CONTENDERS[name].load()(
        Configuration(contender=name, keep_flops=keep, seed=0, depth=8), example=EXAMPLE, total_steps=100
    )


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_the_flops_that_were_asked_for(name: str):
    share = count_image_macs(shaped(name, 0.5).model, EXAMPLE) / count_image_macs(
        build_resnet(8, seed=0), EXAMPLE
    )
    assert 0.49 <= share <= 0.5


@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_larger_exponent_leaves_more_weights_for_the_same_flops(trunk: int):
    sizes = [count_parameters(shaped(shape_name(trunk, exponent), 0.5).model) for exponent in EXPONENTS]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 1.5 * sizes[0]


def test_a_larger_trunk_keeps_the_streams_wider():
    even, wide = (shaped(shape_name(trunk, 0.0), 0.5).facts()["widths"] for trunk in TRUNKS)
    streams = {"stem", "blocks.1.conv2"}  # only the classifier reads the last one
    assert streams < even.keys()
    assert all(wide[name] > even[name] if name in streams else wide[name] < even[name] for name in even)


def test_what_is_called_the_default_prior_is_that_of_the_library():
    given = {name: value.default for name, value in inspect.signature(Capacity).parameters.items()}
    defaults = [shape for shape in SHAPES.values() if "default prior" in shape.words]
    assert len(defaults) == 2
    assert all((shape.trunk, shape.exponent) == (given["trunk"], given["exponent"]) for shape in defaults)


def test_a_shape_is_trained_and_says_its_widths():
    contender = shaped("shape_any", 0.5)
    before = contender.model.blocks[0].conv1.weight.detach().clone()
    images, labels = torch.randn(4, 3, 32, 32), torch.arange(4)
    contender.step(0, (images, labels), lambda: (images, labels))
    assert not torch.equal(contender.model.blocks[0].conv1.weight, before)
    assert contender.facts()["widths"]["blocks.0.conv1"] == len(before)


def test_the_command_writes_a_table_and_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(places, "RUNS", tmp_path / "runs")
    for seed in range(2):
        for name in ("shape_1_0", "shape_3_0"):
            one = Configuration(contender=name, keep_flops=0.5, seed=seed, depth=8, epochs=2)
            result = {
                "configuration": json.loads(one.to_json()),
                "of_code": fingerprint(name),
                "accuracy": 60.0 + seed,
                "log": [{"loss": 2.0}, {"loss": 1.0 + seed / 10}],
                "share_of_flops": 0.499,
                "share_of_parameters": 0.61,
                "widths": {"stem": 8, "blocks.0.conv1": 12},
                "versions": {"torch": "2.0"},
                "threads": 1,
                "date": "2026-01-02",
            }
            one.result_file.parent.mkdir(exist_ok=True)
            one.result_file.write_text(json.dumps(result))
    sheet = tmp_path / "shapes.md"
    sizes = ["--depth", "8", "--keep", "0.5", "--seeds", "3"]
    assert main(["shapes", "--data", "digits", "--table-only", *sizes, "--out", str(sheet)]) == 0
    text = sheet.read_text()
    row = "1.050 | 1.00 to 1.10, sd 0.07 | 60.50 | 2 of 3 | 0.499 | 0.610 | 8 12 |  |"
    assert f"| trunk 1, exponent 0: the same share of every layer | {row}" in text
    assert "| trunk 3, exponent 0.5 | - | - | - | 0 of 3 | - | - | - | not run yet |" in text
    assert (tmp_path / "shapes" / "shapes.png").read_bytes().startswith(b"\x89PNG")
