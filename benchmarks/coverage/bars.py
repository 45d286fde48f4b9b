"""The bars that coverage is held to.

Takes the findings, gives for each bar what was wanted and what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from benchmarks.sheets.sheet import Bar

_TIMM_SHARE = 0.95
_SCALE_SECONDS = 120
_SCALE_GB = 4


def list_bars(measured: Sequence[Measured]) -> list[Bar]:
    """All bars that the measured models can answer."""
    models = [m for m in measured if m.subject.suite != "scale"]
    bars = []
    if models:
        cut = [m for m in models if is_cut(m)]
        bars += [
            all_are("no exception, no wrong cut", "all models", models, lambda m: not is_wrong(m)),
            exact_bar(models),
            *_cut(models),
            _heads(models),
            _not_timid(models),
            all_are("cost law on every model that is cut", "exact", cut, cost_is_exact),
            _time(models),
        ]
    scale = [m for m in measured if m.subject.source == "llama:32"]
    return [bar for bar in bars + [_scale(m) for m in scale] if bar is not None]


def exact_bar(models: Sequence[Measured]) -> Bar:
    """The bar on the largest difference of any model that was compared."""
    cut = [m for m in models if m.parts.get("ours", {}).get("difference") is not None]
    worst = {
        precision: max(
            (m.parts["ours"]["difference"] for m in cut if m.parts["ours"]["precision"] == precision),
            default=0.0,
        )
        for precision in LARGEST_DIFFERENCES
    }
    found = ", ".join(f"{difference:.1e} in {precision}" for precision, difference in worst.items())
    return ("largest difference", "1e-9 in float64, 1e-4 in float32", found, all(is_exact(m) for m in cut))


def _cut(models: list[Measured]) -> list[Bar]:
    kinds = ("classification", "segmentation", "video")
    vision = [m for m in models if m.subject.kind in kinds]
    plain = [m for m in models if m.subject.is_plain_cnn]
    timm = [m for m in models if m.subject.suite == "timm"]

    def is_cut_far(measured: Measured) -> bool:
        return is_cut(measured) and measured.parts["ours"]["removed_share"] >= PLAIN_REMOVED

    bars = [
        all_are("torchvision classification, segmentation, video cut", "100 %", vision, is_cut),
        all_are("plain CNNs: FLOPs removed at keep=0.5", ">= 40 % on all", plain, is_cut_far),
        all_are("timm families cut", ">= 95 %", timm, is_cut, share=_TIMM_SHARE),
    ]
    return [bar for bar in bars if bar is not None]


def all_are(
    what: str,
    wanted: str,
    models: Sequence[Measured],
    is_good: Callable[[Measured], object],
    *,
    share: float = 1.0,
) -> Bar | None:
    """The bar that so many of some models are good, and which are not; None without models."""
    missed = [m for m in models if not is_good(m)]
    num_good = len(models) - len(missed)
    names = ", ".join(m.subject.source.partition(":")[2] for m in missed[:12])
    more = f" and {len(missed) - 12} more" if len(missed) > 12 else ""
    found = f"{num_good} of {len(models)}" + (f"; not: {names}{more}" if missed else "")
    return (what, wanted, found, num_good >= share * len(models)) if models else None


def _heads(models: list[Measured]) -> Bar | None:
    def has_both(m: Measured) -> object:
        ours = m.parts.get("ours", {})
        return is_cut(m) and ours["num_head_groups"] and ours["num_channel_groups"]

    transformers = [m for m in models if m.subject.suite == "transformers"]
    what = "transformers cut, feed-forward and attention heads"
    return all_are(what, "12 of 12", transformers, has_both)


def _not_timid(models: list[Measured]) -> Bar:
    shares = {m.subject.source: share_of_peer(m) for m in models}
    compared = {source: share for source, share in shares.items() if share is not None}
    timid = sorted(
        (source for source, share in compared.items() if share < LEAST_OF_PEER), key=compared.__getitem__
    )
    least = f", least {min(compared.values()):.2f}" if compared else ""
    below = f"; below: {', '.join(f'{source} {compared[source]:.2f}' for source in timid)}" if timid else ""
    return (
        "FLOPs removed, relative to Torch-Pruning's where both are exact",
        ">= 0.95",
        f"{len(compared)} models{least}{below}",
        not timid,
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
    return ("median inspect time", "at most Torch-Pruning's graph + torch.export", found, ours <= theirs)


def _scale(measured: Measured) -> Bar:
    facts = measured.parts.get("scale", {})
    what, wanted = (
        "inspect a 32-layer decoder of width 4096 on meta",
        f"< {_SCALE_SECONDS} s, < {_SCALE_GB} GB",
    )
    if facts.get("failure") or "inspect_seconds" not in facts:
        return (what, wanted, facts.get("failure", "not measured"), False)
    found = f"{facts['inspect_seconds']:.0f} s, {facts['peak_gb']:.1f} GB"
    return (what, wanted, found, facts["inspect_seconds"] < _SCALE_SECONDS and facts["peak_gb"] < _SCALE_GB)
