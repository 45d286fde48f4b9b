"""What the findings of a model mean: exact, cut, wrong, and how it compares with the peer."""

from __future__ import annotations

from statistics import median

from benchmarks.coverage.progress import Measured

LARGEST_DIFFERENCES = {"float64": 1e-9, "float32": 1e-4}
LEAST_REMOVED = 0.15
PLAIN_REMOVED = 0.40
LEAST_OF_PEER = 0.95


def is_exact(measured: Measured) -> bool:
    """Whether the cut model equals the silenced one, as closely as its precision allows.

    No outputs at all prove nothing.
    """
    ours = measured.parts.get("ours", {})
    return bool(ours.get("num_compared")) and ours["difference"] <= LARGEST_DIFFERENCES[ours["precision"]]


def is_cut(measured: Measured) -> bool:
    """Whether it is exact and at least 15 % of the FLOPs are gone when half of each group is."""
    return is_exact(measured) and measured.parts["ours"].get("removed_share", 0) >= LEAST_REMOVED


def cost_is_exact(measured: Measured) -> bool:
    """Whether the predicted multiply-adds are those that torch counts, before and after the cut."""
    ours = measured.parts.get("ours", {})
    return bool(ours.get("cost_of_full_exact") and ours.get("cost_of_cut_exact"))


def survives_disk(measured: Measured) -> bool:
    """Whether save and load give the same bits back, on a model that runs as before."""
    ours = measured.parts.get("ours", {})
    return (
        bool(ours.get("state_survives"))
        and ours.get("difference_after_loading", 1) <= LARGEST_DIFFERENCES["float32"]
    )


def trains(measured: Measured) -> bool:
    """Whether one training step on the cut model works."""
    ours = measured.parts.get("ours", {})
    return "train_problem" in ours and ours["train_problem"] is None


def is_wrong(measured: Measured) -> bool:
    """Whether something raised, or the cut changed the outputs."""
    ours = measured.parts.get("ours", {"failure": "not measured"})
    return bool(ours.get("failure") or ours.get("disk_problem")) or not is_exact(measured)


def why_not_cut(measured: Measured) -> str:
    """The reason why a model doesn't count as cut, in a few words; empty if it does."""
    ours = measured.parts.get("ours", {})
    if ours.get("failure"):
        return ours["failure"]
    if not ours.get("num_compared"):
        return "it returns nothing to compare"
    if not is_exact(measured):
        return f"differs by {ours.get('difference')}"
    if not is_cut(measured):
        reasons = ", ".join(f"{count}x {reason}" for reason, count in ours["kept"].items())
        return f"only {ours['removed_share']:.0%} removed; kept: {reasons or 'nothing'}"
    return ""


def share_of_peer(measured: Measured) -> float | None:
    """The FLOPs that ours removes, relative to Torch-Pruning's; None unless both cut the model exactly."""
    peer = measured.parts.get("peer", {})
    if not (is_exact(measured) and peer.get("exact") and peer.get("removed_share")):
        return None
    return measured.parts["ours"]["removed_share"] / peer["removed_share"]


def median_seconds(measured: list[Measured]) -> tuple[float, float, int] | None:
    """Median seconds of our inspection, and of the peer's graph plus export, where all three succeed."""
    turns = [m.parts.get("turns", {}) for m in measured]
    both = [
        (facts["inspect_seconds"], facts["graph_seconds"] + facts["export_seconds"])
        for facts in turns
        if facts.keys() >= {"inspect_seconds", "export_seconds", "graph_seconds"}
    ]
    if not both:
        return None
    return median(ours for ours, _ in both), median(theirs for _, theirs in both), len(both)
