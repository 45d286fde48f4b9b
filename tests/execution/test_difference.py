"""The law of the one comparison.

0 if and only if both are the same numbers, and nothing that is not a number is ever equal.
"""

import ast
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainonce
from trainonce.deployment.exporting import export_program
from trainonce.execution.comparison import Difference, compare, relative_difference
from trainonce.training.batches.sources import TensorSamples
from trainonce.training.results.widening import compare as compare_models

NAN, INFINITY = float("nan"), float("inf")
ROOT = Path(trainonce.__file__).parent


def numbers(*values: float) -> Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("reference", "found", "relative"),
    [
        ((1.0, -4.0), (1.0, -4.0), 0.0),
        ((1.0, -4.0), (3.0, -4.0), 0.5),
        ((0.0, 0.0), (0.0, 0.0), 0.0),
        ((-INFINITY, 2.0), (-INFINITY, 1.0), 0.5),
        ((-INFINITY, 2.0), (INFINITY, 2.0), INFINITY),
        ((-INFINITY, 2.0), (-1e30, 2.0), INFINITY),
        ((1.0, 2.0), (NAN, 2.0), INFINITY),
        ((NAN, 2.0), (1.0, 2.0), INFINITY),
        ((NAN, 2.0), (INFINITY, 2.0), INFINITY),
        ((NAN, NAN), (NAN, NAN), INFINITY),
        ((NAN, 2.0), (NAN, 2.0), 0.0),
        ((NAN, 2.0), (NAN, 1.0), 0.5),
    ],
)
def test_what_is_not_a_number_is_equal_to_nothing(reference, found, relative):
    assert compare(numbers(*reference), numbers(*found)).relative == relative
    assert relative_difference([numbers(*reference)], [numbers(*found)]) == relative


def test_a_difference_is_never_nan_whatever_is_compared():
    values = (NAN, INFINITY, -INFINITY, 0.0, 1.0, -3e38, 1e-45)
    for one in values:
        for other in values:
            difference = compare(numbers(one), numbers(other))
            assert not math.isnan(difference.relative)
            is_same = not math.isnan(one) and one == other
            assert (difference.relative == 0.0) == is_same, (one, other)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
)
def test_the_difference_is_that_of_the_definition_in_every_precision(dtype):
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        one, other = (torch.randn(3, 5, generator=generator).to(dtype) for _ in range(2))
        wide = torch.complex128 if dtype.is_complex else torch.float64
        expected = (one.to(wide) - other.to(wide)).abs().max() / one.to(wide).abs().max()
        assert compare(one, other).relative == pytest.approx(float(expected), rel=1e-12)


def test_parts_that_are_joined_give_what_the_whole_gives():
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(10, 4, generator=generator), torch.randn(10, 4, generator=generator)
    one[2, 1] = other[2, 1] = NAN
    whole = compare(one, other)
    joined = Difference()
    for left, right in zip(one.split(3), other.split(3), strict=True):
        joined |= compare(left, right)
    assert joined == whole
    assert (whole.num_compared, whole.num_nan) == (39, 1)


@pytest.mark.parametrize(
    "other", [torch.tensor([1, 3]), torch.tensor([1.0, 2.0]), torch.tensor([1]), torch.tensor([True, True])]
)
def test_whole_numbers_of_one_kind_are_equal_or_not_at_all(other):
    assert compare(torch.tensor([1, 2]), torch.tensor([1, 2])).relative == 0.0
    assert compare(torch.tensor([1, 2]), other).relative == INFINITY


def test_another_number_of_outputs_is_infinitely_far():
    assert relative_difference([numbers(1.0)], []) == INFINITY
    assert relative_difference([], []) == 0.0


def test_a_model_of_nan_is_not_cut():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    partition = trainonce.inspect(model, torch.randn(2, 4))
    plan = trainonce.Plan.random(partition, keep=0.5)
    with torch.no_grad():
        model[2].bias.fill_(NAN)
    with pytest.raises(trainonce.PlanError, match="NaN"):
        trainonce.cut(model, plan)
    assert model[0].weight.shape == (8, 4)


def own_comparisons(source: str) -> list[str]:
    """Places that take the largest of a difference themselves: `(a - b).abs().max()`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("max", "amax")
        ):
            inner = node.func.value
            is_absolute = (
                isinstance(inner, ast.Call)
                and isinstance(inner.func, ast.Attribute)
                and inner.func.attr == "abs"
            )
            if (
                is_absolute
                and isinstance(inner.func.value, ast.BinOp)
                and isinstance(inner.func.value.op, ast.Sub)
            ):
                found.append(f"line {node.lineno}")
        if isinstance(node, ast.Attribute) and node.attr in ("allclose", "isclose", "assert_close"):
            found.append(f"line {node.lineno}")
    return found


def test_nobody_else_compares_results():
    assert own_comparisons("worst = float((a - b).abs().max())") == ["line 1"]
    assert own_comparisons("assert torch.allclose(a, b)") == ["line 1"]
    places = {
        path.relative_to(ROOT).as_posix(): own_comparisons(path.read_text(encoding="utf-8"))
        for path in ROOT.rglob("*.py")
    }
    assert {
        name: lines for name, lines in places.items() if lines and name != "execution/comparison.py"
    } == {}


class Broken(nn.Module):
    """Scores that are NaN for some of the inputs, or all."""

    def __init__(self, when: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.when = when

    def forward(self, inputs: Tensor) -> Tensor:
        scores = self.layer(inputs)
        return torch.where(inputs[:, :1] > self.when, torch.full_like(scores, NAN), scores)


@pytest.mark.parametrize("when", [-INFINITY, 1.0], ids=["all", "some"])
def test_a_model_that_gives_nan_is_not_exported(when: float, tmp_path: Path):
    samples = TensorSamples(
        torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(40, dtype=torch.long)
    )
    with pytest.raises(ValueError, match="NaN"):
        export_program(Broken(when), samples, tmp_path / "model.pt2")
    assert not (tmp_path / "model.pt2").exists()


def test_a_small_model_of_nan_agrees_with_nothing():
    torch.manual_seed(0)
    small, wide = nn.Linear(4, 3), nn.Linear(4, 3)
    wide.load_state_dict(small.state_dict())
    samples = TensorSamples(torch.randn(40, 4), torch.zeros(40, dtype=torch.long))
    same = compare_models(small, wide, samples, batch_size=16)
    assert (same.num_same, same.largest_difference) == (40, 0.0)
    with torch.no_grad():
        small.bias.fill_(NAN)
    for broken in (
        compare_models(small, wide, samples, batch_size=16),
        compare_models(small, small, samples, batch_size=16),
    ):
        assert (broken.num_same, broken.largest_difference) == (0, INFINITY)


def trained_to_the_end(model: nn.Module, images: Tensor) -> trainonce.Pruner:
    """A pruner whose run is over, and that has not been asked for the small model yet."""
    optimizer, labels = torch.optim.SGD(model.parameters(), lr=0.1), torch.arange(len(images)) % 2
    policy = trainonce.policies.FilterNorm()
    pruner = trainonce.attach(model, optimizer, example=images, keep_flops=0.5, total_steps=40, policy=policy)
    for _ in range(40):
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        pruner.step()
    return pruner


def test_a_run_that_has_diverged_gives_no_small_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    pruner = trained_to_the_end(model, torch.randn(8, 4))
    with torch.no_grad():
        model[2].bias[0] = NAN
    with pytest.raises(trainonce.PrunerError, match=r"2\.bias is not finite"):
        pruner.finish()


def test_statistics_of_nan_give_no_small_model_until_they_are_put_right():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    model.register_buffer("mask", torch.full((2,), -INFINITY))
    images = torch.randn(8, 4)
    pruner = trained_to_the_end(model, images)
    # A loop that skips steps whose loss is not finite has let the batch through the statistics all the same.
    model(images * NAN)
    with pytest.raises(trainonce.PrunerError, match=r"1\.running_mean holds NaN.* call finish\(\) again"):
        pruner.finish()
    model[1].reset_running_stats()
    model(images)
    assert bool(pruner.finish().eval()(images).isfinite().all())
