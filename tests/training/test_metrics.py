"""Scores beside top-1 are what scikit-learn says they are, over batches and processes alike."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import average_precision_score, jaccard_score, mean_absolute_error, r2_score
from torch import Tensor, nn

from support.runs import Listener, make_data, make_net, make_settings, stop_run
from trainonce.errors import SettingError
from trainonce.runs.folder import read_config
from trainonce.training import fit
from trainonce.training.batches.sources import TensorSamples
from trainonce.training.loop.evaluation import CrossEntropy, Measuring, Scores, evaluate
from trainonce.training.loop.metrics import Fitting
from trainonce.training.loop.precision import Precision
from trainonce.training.loop.processes import Processes


class Known(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def measured(outputs: Any, targets: Any, *, batch_size: int = 7, **changes: Any) -> Scores:
    how = Measuring(
        **(
            {
                "loss": lambda output, target: output.float().mean(),
                "batch_size": batch_size,
                "device": torch.device("cpu"),
                "precision": Precision("cpu", None),
                "processes": Processes(),
            }
            | changes
        )
    )
    return evaluate(Known(), TensorSamples(outputs, targets), how)


def pixels(num_classes: int = 5) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    masks = torch.randint(num_classes, (19, 6, 5))
    return torch.randn(19, num_classes, 6, 5) + 2 * nn.functional.one_hot(masks, num_classes).movedim(
        3, 1
    ), masks


@pytest.mark.parametrize("batch_size", [1, 7, 19])
def test_mean_iou_is_the_mean_of_the_jaccard_scores(batch_size: int):
    scores, masks = pixels()
    found = measured(scores, masks, batch_size=batch_size).metrics
    wanted = jaccard_score(masks.flatten(), scores.argmax(1).flatten(), average="macro")
    assert found["mean_iou"] == pytest.approx(100 * wanted)
    assert found["pixel_accuracy"] == pytest.approx(100 * (scores.argmax(1) == masks).float().mean().item())


def test_pixels_of_no_class_and_classes_without_pixels_do_not_count():
    scores, masks = pixels()
    scores[:, 4] = -100
    masks[masks == 4] = 0
    masks[0], kept = 255, masks.clone()
    found = measured(scores, masks).metrics
    wanted = jaccard_score(
        kept[1:].flatten(), scores[1:].argmax(1).flatten(), average="macro", labels=range(4)
    )
    assert found["mean_iou"] == pytest.approx(100 * wanted)
    assert measured(scores, torch.full_like(masks, 255)).metrics == {}


@pytest.mark.parametrize("axis", [1, 2])
def test_tokens_are_counted_and_ignored_ones_are_not(axis: int):
    torch.manual_seed(0)
    scores, targets = torch.randn(9, 4, 6), torch.randint(6, (9, 4))
    targets[0, 0] = -100
    right = (scores.argmax(2) == targets)[targets >= 0].float().mean().item()
    given = scores if axis == 2 else scores.movedim(2, 1)
    assert measured(given, targets).metrics == {"token_accuracy": pytest.approx(100 * right)}
    loss = CrossEntropy()(given, targets)
    assert loss.item() == pytest.approx(
        nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten()).item()
    )


@pytest.mark.parametrize("shape", [(23,), (23, 1), (23, 3)])
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("batch_size", [1, 7, 23])
def test_numbers_have_mae_and_r2(shape: tuple[int, ...], offset: float, batch_size: int):
    torch.manual_seed(0)
    targets = torch.randn(shape, dtype=torch.double) + offset
    outputs = targets + 0.3 * torch.randn(shape)
    found = measured(outputs, targets, batch_size=batch_size).metrics
    assert found["mae"] == pytest.approx(mean_absolute_error(targets, outputs))
    assert found["r2"] == pytest.approx(r2_score(targets, outputs))


def test_a_column_beside_a_row_is_the_same_numbers():
    outputs, targets = torch.randn(11, 1), torch.randn(11)
    assert measured(outputs, targets).metrics == pytest.approx(measured(outputs[:, 0], targets).metrics)


def test_targets_that_are_all_the_same_have_no_r2_and_pictures_of_numbers_are_numbers():
    assert measured(torch.randn(8, 1), torch.full((8, 1), 3.0)).metrics.keys() == {"mae"}
    targets = torch.rand(8, 3, 4, 4)
    found = measured(targets + 0.1, targets).metrics
    assert found["mae"] == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("kind", [torch.float, torch.bool, torch.long])
@pytest.mark.parametrize("has_ties", [True, False])
def test_several_labels_have_the_mean_average_precision(kind: torch.dtype, has_ties: bool):
    torch.manual_seed(0)
    targets = (torch.rand(31, 4) < 0.3).to(kind)
    targets[:, 3] = 0
    outputs = torch.randn(31, 4) + targets.float()
    outputs = outputs.round() if has_ties else outputs
    wanted = [average_precision_score(targets[:, label].int(), outputs[:, label]) for label in range(3)]
    assert measured(outputs, targets).metrics == {"mean_ap": pytest.approx(100 * sum(wanted) / 3)}


def test_numbers_that_begin_as_zeros_and_ones_are_numbers_all_the_same():
    targets = torch.cat([torch.ones(7, 2), torch.rand(7, 2)])
    assert measured(targets + 0.1, targets).metrics.keys() == {"mae", "r2"}


def test_class_probabilities_and_classes_are_not_taken_for_numbers():
    probabilities = torch.eye(5)[torch.arange(10) % 5]
    assert measured(torch.randn(10, 5), probabilities, loss=CrossEntropy()).metrics == {}
    found = measured(torch.randn(10, 5), torch.arange(10) % 5)
    assert found.metrics == {}
    assert found.top1 is not None


class Ranks:
    """Processes that are threads: each of them waits for what the others have to say."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.barrier = threading.Barrier(world_size, timeout=20)
        self.said: list[Any] = [None] * world_size

    def together(self, rank: int, word: Any) -> list[Any]:
        self.said[rank] = word
        self.barrier.wait()
        heard = list(self.said)
        self.barrier.wait()
        return heard


class Thread(Processes):
    def __init__(self, ranks: Ranks, rank: int) -> None:
        super().__init__(rank, ranks.world_size)
        object.__setattr__(self, "ranks", ranks)

    __slots__ = ("ranks",)

    def summed(self, numbers: list[float]) -> list[float]:
        return [sum(parts) for parts in zip(*self.ranks.together(self.rank, numbers), strict=True)]

    def any_true(self, flags: list[bool]) -> list[bool]:
        return [any(parts) for parts in zip(*self.ranks.together(self.rank, flags), strict=True)]

    def stacked(self, rows: Tensor, *, first: int, total: int) -> Tensor:
        own = rows.new_zeros(total, *rows.shape[1:])
        own[first : first + len(rows)] = rows
        return sum(self.ranks.together(self.rank, own), torch.zeros(()))


def on_threads(world_size: int, outputs: Tensor, targets: Tensor) -> list[dict[str, float]]:
    """The scores that each of several processes finds, of which each sees its share."""
    ranks, found = Ranks(world_size), [{}] * world_size

    def run(rank: int) -> None:
        numbers = torch.arange(len(outputs)).tensor_split(world_size)[rank]
        first = int(numbers[0]) if len(numbers) else 0
        fitting = Fitting(counts_numbers=True, first=first, total=len(outputs))
        for piece in numbers.split(4):
            if len(piece):
                fitting.update(outputs[piece], targets[piece])
        found[rank] = fitting.scores(Thread(ranks, rank))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


CASES: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "pixels": pixels,
    "numbers": lambda: (torch.randn(19, 2) + 5, torch.randn(19, 2) + 5),
    "labels": lambda: (torch.randn(19, 3), (torch.arange(57).view(19, 3) % 3 == 0).float()),
    "labels on one process only": lambda: (
        torch.randn(20, 1),
        torch.cat([torch.arange(10) % 2, torch.rand(10)])[:, None],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_find_together_what_one_finds(name: str, world_size: int):
    torch.manual_seed(0)
    outputs, targets = CASES[name]()
    alone = measured(outputs, targets, batch_size=4).metrics
    assert alone
    assert on_threads(world_size, outputs, targets) == [pytest.approx(alone)] * world_size


def test_a_process_without_samples_keeps_nobody_waiting():
    assert on_threads(3, torch.randn(2, 2), torch.rand(2, 2)) == [{}] * 3


class Streaming:
    """Counts as torchmetrics does: in batches, and never in two evaluations at once."""

    def __init__(self) -> None:
        self.right = self.count = self.resets = 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.right += int((outputs.argmax(1) == targets).sum())
        self.count += len(targets)

    def compute(self) -> dict[str, Tensor]:
        return {"share": torch.tensor(self.right / self.count), "count": torch.tensor(self.count)}

    def reset(self) -> None:
        self.resets += 1
        self.right = self.count = 0


def share_right(outputs: Tensor, targets: Tensor) -> float:
    assert len(outputs) == 32
    return float((outputs.argmax(1) == targets).float().mean())


def test_a_metric_of_the_users_own_sees_the_whole_validation_data(tmp_path: Path):
    settings, view = make_settings(epochs=3), Listener()
    result = fit(
        make_net(), make_data(), settings=settings, metric=share_right, out=tmp_path / "run", view=view
    )
    assert [record["metrics"] for record in result.history] == [
        {"share_right": pytest.approx(record["top1"] / 100)} for record in result.history
    ]
    metric = Streaming()
    again = fit(make_net(), make_data(), settings=settings, metric=metric, quiet=True)
    assert [record["metrics"]["share"] for record in again.history] == pytest.approx(
        [record["metrics"]["share_right"] for record in result.history]
    )
    assert again.history[0]["metrics"]["count"] == 32
    assert metric.resets >= 3
    page = (tmp_path / "run" / "report.html").read_text()
    assert ">share_right<" in page
    header, *rows = (tmp_path / "run" / "summary.csv").read_text().splitlines()
    assert header.endswith(",share_right")
    assert [float(row.rpartition(",")[2]) for row in rows] == pytest.approx(
        [record["metrics"]["share_right"] for record in result.history]
    )
    assert "metric" not in read_config(tmp_path / "run")


def explode(outputs: Tensor, targets: Tensor) -> float:
    raise RuntimeError("only one class\nis there")


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (explode, "no explode in this epoch: RuntimeError: only one class is there"),
        (lambda outputs, targets: "good", "no metric in this epoch: metric must return a number"),
        (lambda outputs, targets: {}, "no metric in this epoch: metric must return a number.*got 0 numbers"),
        (lambda outputs, targets: outputs, "no metric in this epoch: .*got Tensor"),
    ],
)
def test_a_metric_that_fails_is_told_and_loses_nothing(metric: Any, words: str):
    view = Listener()
    result = fit(make_net(), make_data(), settings=make_settings(epochs=2), metric=metric, view=view)
    told = [line for line in view.lines if line.startswith("no ")]
    assert len(told) == 2
    assert re.match(words, told[0])
    assert all(line.isprintable() for line in told)
    assert "metrics" not in result.history[-1]
    assert result.history[-1]["top1"] is not None


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (Streaming, r"metric is the class Streaming\. Pass an instance, Streaming\(\)"),
        ("accuracy", "metric must be a function of outputs and targets, or an object with update"),
        (3, "metric must be a function"),
    ],
)
def test_what_is_no_metric_is_refused_in_one_line(metric: Any, words: str):
    with pytest.raises(SettingError, match=words):
        fit(make_net(), make_data(), settings=make_settings(), metric=metric, quiet=True)


def test_a_resumed_run_has_the_metrics_of_all_its_epochs(tmp_path: Path):
    settings = make_settings(epochs=3)
    stop_run(tmp_path / "run", at=8, settings=settings)
    result = fit(
        make_net(),
        make_data(),
        settings=settings,
        metric=share_right,
        out=tmp_path / "run",
        resume=True,
        quiet=True,
    )
    assert [("metrics" in record) for record in result.history] == [False, True, True]
