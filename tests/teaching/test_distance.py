"""The distance to a teacher is the KL divergence of softened classes, of what counts, and of nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softmax

from trainonce import SettingError
from trainonce.teaching.distance import distance_of_classes


def by_hand(outputs: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Of rows of logits, written out as in the paper."""
    theirs, mine = softmax(wanted / temperature, dim=1), softmax(outputs / temperature, dim=1)
    return temperature**2 * (theirs * (theirs.log() - mine.log())).sum(1)


def logits(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, *shape, generator=generator, dtype=torch.double).unbind())  # type: ignore


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.5])
def test_rows_of_logits(temperature: float):
    mine, theirs = logits(6, 5)
    found = distance_of_classes(mine, theirs, temperature=temperature)
    assert torch.allclose(found, by_hand(mine, theirs, temperature).mean(), rtol=1e-12)


def test_equal_outputs_are_no_distance_and_others_are():
    mine, theirs = logits(6, 5)
    assert distance_of_classes(theirs, theirs, temperature=2.0).abs() < 1e-12
    assert distance_of_classes(mine, theirs, temperature=2.0) > 0.01


@pytest.mark.parametrize(
    ("shape", "axis", "classes"), [((3, 7, 5), None, 2), ((3, 5, 7), 1, 1), ((2, 5, 4, 4), None, 1)]
)
def test_tokens_and_pixels_are_rows(shape: tuple[int, ...], axis: int | None, classes: int):
    mine, theirs = logits(*shape)
    rows = [part.movedim(classes, -1).reshape(-1, 5) for part in (mine, theirs)]
    found = distance_of_classes(mine, theirs, temperature=2.0, axis=axis)
    assert torch.allclose(found, by_hand(*rows, 2.0).mean(), rtol=1e-12)


def test_padding_does_not_count():
    mine, theirs = logits(2, 4, 5)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    rows = [part[mask.bool()] for part in (mine, theirs)]
    found = distance_of_classes(mine, theirs, temperature=2.0, counts=mask)
    assert torch.allclose(found, by_hand(*rows, 2.0).mean(), rtol=1e-12)


def test_half_precision_is_compared_in_single():
    mine, theirs = (part.half() for part in logits(6, 5))
    found = distance_of_classes(mine, theirs, temperature=2.0)
    assert found.dtype == torch.float32
    assert torch.allclose(found, by_hand(mine.float(), theirs.float(), 2.0).mean())


def test_logits_are_found_in_named_outputs():
    mine, theirs = logits(6, 5)
    found = distance_of_classes(SimpleNamespace(logits=mine), {"logits": theirs}, temperature=2.0)
    assert torch.equal(found, distance_of_classes(mine, theirs, temperature=2.0))


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (torch.zeros(4, 1), torch.zeros(4, 1), "not classes"),
        (torch.zeros(4), torch.zeros(4), "not classes"),
        (torch.zeros(4, 3), torch.zeros(4, 5), r"\(4, 5\), and the model's \(4, 3\)"),
        ("boxes", torch.zeros(4, 5), "the model returns no logits"),
        (torch.zeros(4, 5), {"boxes": 1}, "the teacher returns no logits"),
    ],
)
def test_what_has_no_classes_is_refused(mine: Any, theirs: Any, words: str):
    with pytest.raises(SettingError, match=words) as caught:
        distance_of_classes(mine, theirs, temperature=2.0)
    assert "\n" not in str(caught.value)
