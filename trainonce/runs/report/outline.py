"""What a report is about, before any of it is worded: its budget, its samples, its dense run, its cuts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.uncertainty import Change, accuracy_change

Report = Mapping[str, Any]

SMALLEST_GAIN = 1.02
"""A speedup below this is none: two runs of the same model differ as much."""


def title_of(report: Report) -> str:
    """Such as `cifar:resnet20 on digits`."""
    config = report["config"]
    model, data = config.get("model"), config.get("data")
    return in_one_line(f"{model or 'model'} on {data}" if data else model or "model", 300)


def noun_of(report: Report) -> str:
    """What one sample is: an image for the command's data sets, which are all of images."""
    return "image" if "data" in report["config"] else "sample"


def is_finished(report: Report) -> bool:
    """Whether the run has trained to its end."""
    return report.get("before") is not None


def is_dense(report: Report) -> bool:
    """Whether nothing was to be cut."""
    config = report["config"]
    budgets = [config.get(name) for name in ("keep_flops", "keep_params")]
    return any(budget is not None and budget >= 1 for budget in budgets)


def share_kept(report: Report, name: str) -> float | None:
    """The small model's `macs` or `parameters` as a share of the dense model's."""
    before, after = ((report.get(which) or {}).get(name) for which in ("before", "after"))
    return after / before if before and after is not None else None


def speedup_of(report: Report) -> float | None:
    """How many times faster the small model is; None if that was not measured."""
    before, after = ((report.get(which) or {}).get("latency_ms") for which in ("before", "after"))
    if not before or not after or before["median"] <= 0 or after["median"] <= 0:
        return None
    return before["median"] / after["median"]


def speed_in_words(speedup: float) -> str:
    """Such as `1.49x faster`."""
    if speedup >= SMALLEST_GAIN:
        return f"{speedup:.2f}x faster"
    return "no faster" if speedup > 1 / SMALLEST_GAIN else f"{1 / speedup:.2f}x slower"


def num_samples_of(report: Report) -> int | None:
    """How many samples the accuracy was measured on; older reports have it in their comparison only."""
    known = (report.get("after") or {}).get("num_samples") or (report.get("agreement") or {}).get(
        "num_samples"
    )
    return known or None


def top1_of(scores: Mapping[str, Any] | None) -> float | None:
    """Top-1 in percent, if it was measured and is a number."""
    found = (scores or {}).get("top1")
    return found if found is not None and math.isfinite(found) else None


def change_from(report: Report, baseline: Mapping[str, Any] | None) -> Change | None:
    """The run's accuracy minus that of a dense run; None if one of them is not known."""
    mine, theirs = top1_of(report.get("after")), top1_of(baseline)
    if mine is None or theirs is None:
        return None
    samples = num_samples_of(report)
    # A dense run of the same data that didn't write down its samples was measured on the same ones.
    return accuracy_change(
        mine, theirs, num_samples=samples, num_before=(baseline or {}).get("num_samples") or samples
    )


def cut_epochs(report: Report) -> list[float]:
    """When the model was cut, in epochs."""
    schedule = report.get("schedule") or {}
    last = (schedule.get("phases") or {}).get("small")
    steps = schedule.get("cuts") or ([] if last is None else [last])
    return [step / schedule["steps_per_epoch"] for step in steps]
