"""An example's outline: it holds no content, and a stand-in can be made from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from trainonce.execution.outline import MOST_ELEMENTS, OutlineError, outline_of, stand_in


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(2, 3),
        lambda: (torch.randint(5, 9, (2, 4)), torch.ones(2, 4, dtype=torch.bool)),
        lambda: {
            "x": torch.randn(1, dtype=torch.float16),
            "parts": [None, 3, "a", (1.5, True)],
            "empty": torch.zeros(0, 3),
        },
    ],
)
def test_a_stand_in_looks_like_the_example(make: Callable[[], Any]):
    example = make()
    outline = json.loads(json.dumps(outline_of(example)))
    assert outline_of(stand_in(outline)).keys() == outline.keys()
    again = stand_in(outline)
    flat, other = torch.utils._pytree.tree_leaves(example), torch.utils._pytree.tree_leaves(again)
    for mine, theirs in zip(flat, other, strict=True):
        if not isinstance(mine, Tensor):
            assert (type(mine), mine) == (type(theirs), theirs)
            continue
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        if mine.numel() and not mine.is_floating_point():
            assert mine.min() <= theirs.min() <= theirs.max() <= mine.max()


def test_an_outline_holds_no_content_and_has_an_end():
    secret = torch.full((2, 3), 3.25)
    assert "3.25" not in json.dumps(outline_of(secret))
    assert outline_of({"x": object()}) is None
    with pytest.raises(OutlineError):
        stand_in({"tensor": [MOST_ELEMENTS + 1], "dtype": "float32"})
    with pytest.raises(OutlineError):
        stand_in({"list": [{"value": 1}] * 5000})
