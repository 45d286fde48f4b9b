"""Ranks that hand over end with the same bits, whatever batches they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch.distributed as dist

from support.ranks import run_two

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="this torch has no gloo"
)


def test_two_ranks_hand_over_the_same_weights():
    said = run_two(Path(__file__).with_name("handed_run.py"))
    # What both write may stand in one line.
    ends = re.findall(r"rank \d (\[[\d, ]*\] [0-9a-f]{64})", said)
    assert len(ends) == 2
    assert ends[0] == ends[1]
    assert ends[0].startswith("[9, 19] "), "cut in the steps of the two decisions"
