"""Cut and uncut are compared in the unit that the model decides in.

Samples, pixels or tokens, and in words that say so.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.runs import make_settings
from trainonce.execution.logits import class_axis
from trainonce.runs.report.verdict import remarks_on
from trainonce.training import fit
from trainonce.training.batches.sources import TensorSamples
from trainonce.training.results.widening import compare


class Returned(nn.Module):
    """Gives what a function makes of its input; has a parameter, as every model."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def compared(one: Any, other: Any, targets: Tensor, inputs: Tensor | None = None) -> Any:
    inputs = torch.randn(len(targets), 5) if inputs is None else inputs
    return compare(Returned(one), Returned(other), TensorSamples(inputs, targets), batch_size=4)


def test_segmentation_counts_pixels():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 3, 1),
    )
    images = torch.randn(32, 3, 8, 8)
    data = images, images.argmax(dim=1)
    result = fit(net, (data, data), settings=make_settings(keep_flops=0.6, lr=0.01), quiet=True)
    agreement = result.report["agreement"]
    assert agreement["num_samples"] == 32
    assert agreement["num_same"] == agreement["num_compared"] == 32 * 8 * 8
    assert agreement["unit"] == "pixels"
    assert "same class on 2048 of 2048 pixels of 32 validation samples" in remarks_on(result.report)[0]
    assert result.report["after"]["top1"] is None


@pytest.mark.parametrize(
    ("agreement", "words"),
    [
        (
            {"num_same": 30, "num_samples": 32, "num_compared": 32, "unit": "samples"},
            "same class on 30 of 32 validation samples",
        ),
        ({"num_same": 30, "num_samples": 32}, "same class on 30 of 32 validation samples"),
        (
            {"num_same": None, "num_samples": 32, "num_compared": None, "unit": ""},
            "outputs compared on 32 validation samples",
        ),
    ],
)
def test_the_words_say_what_was_counted(agreement: dict[str, Any], words: str):
    report = {"agreement": agreement | {"largest_difference": 1e-7}, "before": {}}
    assert remarks_on(report) == [f"before and after the cut: {words}, largest difference 1.0e-07"]


@pytest.mark.parametrize(
    ("scores", "targets", "axis"),
    [
        ((4, 10), torch.zeros(4, dtype=torch.long), 1),
        ((4, 10, 8, 8), torch.zeros(4, 8, 8, dtype=torch.long), 1),
        ((4, 7, 10), torch.zeros(4, 7, dtype=torch.long), 2),
        ((4, 10, 7), torch.zeros(4, 7, dtype=torch.long), 1),
        ((4,), torch.zeros(4, dtype=torch.long), None),
        ((4, 1), torch.zeros(4, dtype=torch.long), None),
        ((4, 10), torch.zeros(4), None),
        ((4, 10), torch.zeros(4, dtype=torch.bool), None),
        ((4, 10), torch.zeros(4, 10), None),
        ((4, 10), {"labels": torch.zeros(4)}, None),
        ((), torch.zeros(4, dtype=torch.long), None),
    ],
)
def test_classes_are_found_where_the_targets_are_class_numbers(
    scores: tuple[int, ...], targets: Any, axis: int | None
):
    assert class_axis(torch.zeros(scores), targets) == axis
    assert class_axis(None, targets) is None


def test_every_tensor_of_an_output_counts_relative_to_its_own_size():
    targets = torch.zeros(10, dtype=torch.long)
    found = compared(
        lambda x: {"large": 1e6 * x, "small": 1e-6 * x},
        lambda x: {"large": 1e6 * x, "small": 1.25e-6 * x},
        targets,
    )
    assert found.largest_difference == pytest.approx(0.2)
    assert found.num_same is None
    assert found.num_samples == 10


def test_another_class_is_counted_and_other_shapes_never_agree():
    labels = torch.arange(10) % 5
    turned = compared(lambda x: x, lambda x: -x, labels)
    assert turned.num_same == 0
    assert turned.num_compared == turned.num_samples == 10
    assert compared(lambda x: [x, x], lambda x: [x], labels).largest_difference == float("inf")
    assert compared(
        lambda x: {"boxes": x[:, :2]}, lambda x: {"boxes": x}, labels
    ).largest_difference == float("inf")


def test_numbers_that_are_no_floats_are_compared_too():
    labels = torch.arange(10) % 5
    kinds = lambda x: (x > 0, (10 * x).long(), x.half(), torch.complex(x, x))  # noqa: E731
    assert compared(kinds, kinds, labels).largest_difference == 0
    assert compared(
        lambda x: {"mask": x > 0}, lambda x: {"mask": x <= 0}, labels
    ).largest_difference == float("inf")


def test_an_output_without_any_tensor_can_not_be_compared():
    with pytest.raises(ValueError, match="no tensor"):
        compared(lambda x: "done", lambda x: "done", torch.arange(10))
