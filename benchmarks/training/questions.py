"""The studies: each a question and the contenders that answer it."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.training.catalogue import CONSTANT_LAMBDAS, GAMMAS, LAST_CUTS, SHRINK_FROM


@dataclass(frozen=True, slots=True)
class Study:
    """One table and one figure for each budget."""

    title: str
    words: str
    contenders: tuple[str, ...]
    """The first is what the others are compared with."""


STUDIES = {
    "lambda": Study(
        "lambda, the strength of the pull (figure 3 a, e)",
        "The paper's constant lambda at several strengths, without a floor, as there; our defaults pull at "
        "0.05 and down to a tenth of the "
        "group's mean norm while the decision is open, and at 10 to zero after it.",
        ("defaults", "no_pull", *(f"lambda_{value:g}" for value in CONSTANT_LAMBDAS)),
    ),
    "gamma": Study(
        "gamma, the weight of the FLOPs penalty (figures 3 b, f and 4)",
        "The paper's controller at several weights and with its phases: one cut at half-time. Our default "
        "has no gamma: each of its draws "
        "meets a budget that comes down to the target.",
        ("defaults", *(f"gamma_{value:g}" for value in GAMMAS)),
    ),
    "shrink_from": Study(
        "T_w, when the pull begins (figure 3 c, g)",
        "From the beginning of the search (5 % of the run) to the decision (45 %); our default is 10 %. "
        "Nothing is cut before the pull "
        "begins, so that the last row has one cut in place of two.",
        ("defaults", *(f"shrink_from_{value:g}" for value in SHRINK_FROM)),
    ),
    "projection": Study(
        "Proximal or half-space (figure 3 d, h)",
        "Both operators with our strengths (the defaults are proximal) and with the paper's constant lambda.",
        ("defaults", "half_space", "lambda_10", "half_space_10"),
    ),
    "optimizer": Study(
        "SGD or AdamW",
        "The same warm-up and cosine; SGD from 0.1, AdamW from 0.003 with weight decay 0.01, which was not "
        "tuned. Compare each with its "
        "own dense model.",
        ("defaults", "dense", "adamw", "adamw_metric", "dense_adamw"),
    ),
    "revival": Study(
        "Can units come back?",
        "With the floor (default) no unit reaches zero before the decision, so that each can come back. Off: "
        "what the masks dropped once "
        "stays dropped (but for filling a layer up to a round width). Without the floor, or with the paper's "
        "constant lambda, what reaches "
        "zero gets no gradient any more, and if it is kept all the same it is dead.",
        ("defaults", "never_back", "no_floor", "lambda_10"),
    ),
    "prior": Study(
        "Which widths, and which channels",
        "Our defaults begin from a prior in which what several layers read stays up to three times as wide "
        "as other layers. Against the "
        "same share of every layer; and without a controller, with the filters of largest norm and with "
        "random channels, which are not "
        "pulled before the decision.",
        ("defaults", "even", "prior_alone", "prior_random", "even_random"),
    ),
    "shrink": Study(
        "Cut while training, or at the end",
        "The same decision and the same training; the accuracies should differ by no more than rounding "
        "does over a run.",
        ("defaults", "no_shrink"),
    ),
    "cuts": Study(
        "One cut or two, and when",
        "Our defaults cut half of the way at 20 % of the run and the rest at 45 %; against one cut, early or "
        "late, a later last one, and "
        "Torch-Pruning, which cuts once at half-time.",
        (
            "defaults",
            "once_at_0.3",
            "once_at_0.5",
            *(f"last_at_{value:g}" for value in LAST_CUTS),
            "torch_pruning",
        ),
    ),
}
