"""The bars that coverage is held to.

Takes the findings, gives for each bar what was wanted and what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.coverage.progress import Measured
from benchmarks.coverage.verdict import (
    LARGEST_DIFFERENCES,
    LEAST_OF_PEER,
    PLAIN_REMOVED,
    cost_is_exact,
    is_cut,
    is_exact,
    is_wrong,
    median_seconds,
    share_of_peer,
)

_TIMM_SHARE = 0.95
_SCALE_SECONDS = 120
_SCALE_GB = 4


@dataclass(frozen=True, slots=True)
class Bar:
    """One demand and how it was met."""

    what: str
    wanted: str
    found: str
    is_met: bool


def list_bars(measured: Sequence[Measured]) -> list[Bar]:
    """All bars that the measured models can answer."""
    models = [m for m in measured if m.subject.suite != "scale"]
    bars = []
    if models:
        bars += [
            _nothing_wrong(models),
            _exact(models),
            *_cut(models),
            _heads(models),
            _not_timid(models),
            _cost(models),
            _time(models),
        ]
    scale = [m for m in measured if m.subject.source == "llama:32"]
    return [bar for bar in bars + [_scale(m) for m in scale] if bar is not None]


def _nothing_wrong(models: list[Measured]) -> Bar:
    wrong = [m for m in models if is_wrong(m)]
    return Bar(
        "no exception, no wrong cut", "all models", _count(len(models) - len(wrong), models, wrong), not wrong
    )


def _exact(models: list[Measured]) -> Bar:
    cut = [m for m in models if m.parts.get("ours", {}).get("difference") is not None]
    worst = {
        precision: max(
            (m.parts["ours"]["difference"] for m in cut if m.parts["ours"]["precision"] == precision),
            default=0.0,
        )
        for precision in LARGEST_DIFFERENCES
    }
    found = ", ".join(f"{difference:.1e} in {precision}" for precision, difference in worst.items())
    return Bar("largest difference", "1e-9 in float64, 1e-4 in float32", found, all(is_exact(m) for m in cut))


def _cut(models: list[Measured]) -> list[Bar]:
    bars = []
    vision = [m for m in models if m.subject.kind in ("classification", "segmentation", "video")]
    if vision:
        missed = [m for m in vision if not is_cut(m)]
        bars.append(
            Bar(
                "torchvision classification, segmentation, video cut",
                "100 %",
                _count(len(vision) - len(missed), vision, missed),
                not missed,
            )
        )
    plain = [m for m in models if m.subject.is_plain_cnn]
    if plain:
        missed = [m for m in plain if not (is_cut(m) and m.parts["ours"]["removed_share"] >= PLAIN_REMOVED)]
        bars.append(
            Bar(
                "plain CNNs: FLOPs removed at keep=0.5",
                ">= 40 % on all",
                _count(len(plain) - len(missed), plain, missed),
                not missed,
            )
        )
    timm = [m for m in models if m.subject.suite == "timm"]
    if timm:
        missed = [m for m in timm if not is_cut(m)]
        met = len(timm) - len(missed) >= _TIMM_SHARE * len(timm)
        bars.append(Bar("timm families cut", ">= 95 %", _count(len(timm) - len(missed), timm, missed), met))
    return bars


def _heads(models: list[Measured]) -> Bar | None:
    transformers = [m for m in models if m.subject.suite == "transformers"]
    if not transformers:
        return None
    missed = [
        m
        for m in transformers
        if not (is_cut(m) and m.parts["ours"]["num_head_groups"] and m.parts["ours"]["num_channel_groups"])
    ]
    found = _count(len(transformers) - len(missed), transformers, missed)
    return Bar("transformers cut, feed-forward and attention heads", "12 of 12", found, not missed)


def _not_timid(models: list[Measured]) -> Bar:
    shares = {m.subject.source: share_of_peer(m) for m in models}
    compared = {source: share for source, share in shares.items() if share is not None}
    timid = sorted(
        (source for source, share in compared.items() if share < LEAST_OF_PEER), key=compared.__getitem__
    )
    least = f", least {min(compared.values()):.2f}" if compared else ""
    below = f"; below: {', '.join(f'{source} {compared[source]:.2f}' for source in timid)}" if timid else ""
    return Bar(
        "FLOPs removed, relative to Torch-Pruning's where both are exact",
        ">= 0.95",
        f"{len(compared)} models{least}{below}",
        not timid,
    )


def _cost(models: list[Measured]) -> Bar:
    cut = [m for m in models if is_cut(m)]
    missed = [m for m in cut if not cost_is_exact(m)]
    return Bar(
        "cost law on every model that is cut",
        "exact",
        _count(len(cut) - len(missed), cut, missed),
        not missed,
    )


def _time(models: list[Measured]) -> Bar | None:
    seconds = median_seconds(models)
    if seconds is None:
        return None
    ours, theirs, number = seconds
    missing = {
        name: sum(f"{name}_seconds" not in m.parts.get("turns", {}) for m in models)
        for name in ("inspect", "export", "graph")
    }
    found = f"{ours:.2f} s beside {theirs:.2f} s on {number} of {len(models)} models"
    found += "; failed or out of time: " + ", ".join(f"{name} {count}" for name, count in missing.items())
    return Bar("median inspect time", "at most Torch-Pruning's graph + torch.export", found, ours <= theirs)


def _scale(measured: Measured) -> Bar:
    facts = measured.parts.get("scale", {})
    what, wanted = (
        "inspect a 32-layer decoder of width 4096 on meta",
        f"< {_SCALE_SECONDS} s, < {_SCALE_GB} GB",
    )
    if facts.get("failure") or "inspect_seconds" not in facts:
        return Bar(what, wanted, facts.get("failure", "not measured"), False)
    found = f"{facts['inspect_seconds']:.0f} s, {facts['peak_gb']:.1f} GB"
    return Bar(
        what, wanted, found, facts["inspect_seconds"] < _SCALE_SECONDS and facts["peak_gb"] < _SCALE_GB
    )


def _count(good: int, of: list[Measured], bad: list[Measured]) -> str:
    names = ", ".join(m.subject.source.partition(":")[2] for m in bad[:12])
    more = f" and {len(bad) - 12} more" if len(bad) > 12 else ""
    return f"{good} of {len(of)}" + (f"; not: {names}{more}" if bad else "")
