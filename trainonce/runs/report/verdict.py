"""The result of a run in words: takes the facts of a run, gives one sentence and a few remarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.report.outline import (
    Report,
    change_from,
    is_dense,
    is_finished,
    noun_of,
    num_samples_of,
    share_kept,
    speed_in_words,
    speedup_of,
    top1_of,
)
from trainonce.runs.report.scores import in_words, scores_of
from trainonce.runs.report.uncertainty import Change, accuracy_interval, counted, interval_words


def verdict_of(report: Report) -> str:
    """One sentence: what was kept, how accurate it is beside dense training, and how much faster."""
    if not is_finished(report):
        return _so_far(report)
    if is_dense(report):
        return f"Dense training, nothing was cut{_prefixed(': ', _accuracy(report))}."
    kept = share_kept(report, "macs")
    what = "FLOPs"
    if kept is None:
        kept, what = share_kept(report, "parameters"), "parameters"
    parts = [] if kept is None else [f"keeps {100 * kept:.1f} % of the {what}"]
    change = change_from(report, report.get("baseline"))
    if change is not None:
        parts.append(_beside_dense(change, noun_of(report)))
    elif accuracy := _accuracy(report):
        parts.append(f"reaches {accuracy}")
    parts += [part for part in (_agreement(report), _speed(report)) if part]
    return f"The small model {_joined(parts)}." if parts else "The small model is trained."


def remarks_on(report: Report) -> list[str]:
    """What else one should know: how close both models are, what was skipped, what is missing."""
    lines = []
    agreement = report.get("agreement")
    if agreement and agreement.get("num_samples") is not None:
        difference = agreement.get("largest_difference")
        size = f"{difference:.1e}" if difference else "0"
        lines.append(f"before and after the cut: {_counted(agreement)}, largest difference {size}")
    if not is_finished(report):
        epochs = in_one_line(report["config"].get("epochs", "?"), 20)
        lines.append(f"the run is not finished: epoch {len(report['history'])} of {epochs}")
    if report.get("num_skipped"):
        lines.append(
            f"{counted(report['num_skipped'], 'step')} skipped: the loss or gradients were not finite"
        )
    lines += [in_one_line(f"no {part}: {reason}") for part, reason in (report.get("missing") or {}).items()]
    return lines


def _so_far(report: Report) -> str:
    config, last = report["config"], (report["history"] or [{}])[-1]
    parts = [
        f"Still training: epoch {len(report['history'])} of {in_one_line(config.get('epochs', '?'), 20)}"
    ]
    top1 = top1_of(last)
    if top1 is not None:
        parts.append(f"{top1:.2f} % top-1 so far")
    elif scores := scores_of(last):
        parts.append(f"{scores[0]} so far")
    if last.get("keep_flops") is not None and not is_dense(report):
        parts.append(f"the masks keep {100 * last['keep_flops']:.1f} % of the FLOPs")
    return f"{', '.join(parts)}."


def _accuracy(report: Report) -> str:
    """Such as `94.72 % top-1 (95 % interval 91.9 to 96.6 on 360 images)`."""
    after, samples = report.get("after") or {}, num_samples_of(report)
    top1, scores = top1_of(after), scores_of(after)
    if top1 is None and scores:
        dense = in_words(scores_of(report.get("baseline"))[:2])
        return in_words(scores[:2]) + (f" (dense training: {dense})" if dense else "")
    if top1 is None:
        loss = after.get("validation_loss")
        return "" if loss is None else f"a validation loss of {loss:.4g}"
    if samples is None:
        return f"{top1:.2f} % top-1"
    interval = interval_words(accuracy_interval(top1, samples))
    return f"{top1:.2f} % top-1 ({interval} on {counted(samples, noun_of(report))})"


def _beside_dense(change: Change, noun: str) -> str:
    """Such as `gets 1 more of the 360 images right than dense training (+0.28 points, ...)`."""
    noise = ": within the noise" if change.is_noise else ""
    sure = "" if change.interval is None else f"{interval_words(change.interval, signed=True)}{noise}"
    if change.num_right is None or change.num_samples is None:
        which = "more" if change.points > 0 else "less"
        return (
            f"is {abs(change.points):.2f} points {which} accurate than dense training{_prefixed(', ', sure)}"
        )
    if change.num_right == 0:
        return f"gets as many of the {counted(change.num_samples, noun)} right as dense training ({sure})"
    which = "more" if change.num_right > 0 else "fewer"
    return (
        f"gets {abs(change.num_right):,} {which} of the {counted(change.num_samples, noun)} right than dense "
        f"training ({change.points:+.2f} points, {sure})"
    )


def _agreement(report: Report) -> str:
    agreement = report.get("agreement") or {}
    same, samples = agreement.get("num_same"), agreement.get("num_samples")
    unit = agreement.get("unit", "samples")
    compared = samples if unit == "samples" else agreement.get("num_compared")
    if same is None or not compared:
        return ""
    noun = counted(compared, noun_of(report)) if unit == "samples" else f"{compared:,} {unit}"
    share = f"all {noun}" if same == compared else f"{same:,} of {noun}"
    return f"predicts the same as the uncut model on {share}"


def _speed(report: Report) -> str:
    speedup = speedup_of(report)
    return "" if speedup is None else f"runs {speed_in_words(speedup)}"


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _prefixed(start: str, text: str) -> str:
    return f"{start}{text}" if text else ""


def _counted(agreement: Mapping[str, Any]) -> str:
    """On how many samples, or parts of samples, both models say the same class, if they say classes."""
    samples = f"{agreement['num_samples']} validation samples"
    same, unit = agreement.get("num_same"), agreement.get("unit", "samples")
    compared = agreement.get("num_compared")
    if same is None or (unit != "samples" and compared is None):
        return f"outputs compared on {samples}"
    if unit == "samples":
        return f"same class on {same} of {samples}"
    return f"same class on {same} of {compared} {unit} of {samples}"
