"""The changelog's table of names leads from every public name that is gone to one that is there."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import trainonce

TEXT = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`[^|]+) \| (`[^|]+) \|$", TEXT, re.MULTILINE)
RENAMED = [
    (old, new)
    for left, right in ROWS
    if right.startswith("`trainonce.")
    for old, new in zip(re.findall(r"`([^`]+)`", left), re.findall(r"`([^`]+)`", right), strict=True)
]

PUBLIC_IN_0_1 = """
AdamMetric BadArtifact BadLoss BadSetting ChannelGroup Diverged GradientMapping HalfSpace Interrupted
Partition
Phase Plan Proximal Pruner PrunerError Result Schedule Settings ShortRun Strength UnreachableBudget
UnusableModel WrongModel WrongPlan attach cost cut fit inspect load policies rule save silence
"""


def find(path: str) -> Any:
    module, _, name = path.rpartition(".")
    home = trainonce.policies if module == "trainonce.policies" else importlib.import_module(module)
    return getattr(home, name, None)


@pytest.mark.parametrize(("old", "new"), RENAMED, ids=[old for old, _ in RENAMED])
def test_a_new_name_is_there_and_the_old_one_is_gone(old: str, new: str):
    assert find(new) is not None
    assert find(old if "." in old else f"trainonce.{old}") is None


def test_no_public_name_is_gone_without_a_row():
    gone = {name for name in PUBLIC_IN_0_1.split() if name not in trainonce.__all__}
    assert gone == {old.removeprefix("trainonce.") for old, _ in RENAMED if old.count(".") == 1}
