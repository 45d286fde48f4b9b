"""The regimes: what is trained for how long from what, who is compared, and what has to be met.

A contender is named once per budget; a budget of 1 is the dense model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.training.measures import ACCURACY, BITS, Measure

COMMON = """\
The same batches in the same order for everyone with the same seed, and as many steps. The score is that of
the last epoch on the whole test set, after the cut; no run or epoch is chosen by it. Settings of ours were
tuned on images set aside from the training images, with other seeds than the table's (`docs/evidence.md`
says what was tuned on what).

- *spread*: smallest and largest of the seeds, and their standard deviation.
- *to dense*, *ours ahead*: {unit}, over the seeds that both have (each one); *95 %*: where the true mean of
  *ours ahead* lies, by Student's t on the differences seed by seed. A lead counts where this excludes zero.
- *training loss*: mean over the last epoch; *test loss*: the quieter measure. A teacher is part of the
  training loss of those that have one.
- *FLOPs*, *parameters*: share of the dense model's, counted by torch; *equal FLOPs*: within 1 % of what was
  asked for, in every run.
- *time*: seconds of training and testing, dense = 1, as they came on machines with other work: a hint.
"""


WHO = """\
- *ours* also calls the model on samples held for the controller, from a fixed 5 % of those to train on,
  which everyone trains on: a batch in 10 to 20 steps of the search. *The paper's constants*: lambda = 10,
  one cut at half-time, one update in 20 steps.
- *policy*: our schedule, budget, cut and pull after the decision, and another way to choose. OTO and OTOv2
  have their half-space operator, and OTO its package's lambda; the others pull nothing before the decision,
  where ours pulls gently.
- *from scratch*: the shape that our defaults found with the same seed, weights drawn anew, trained as long.
- *Torch-Pruning* trains for half of the epochs, prunes every layer by the same ratio as its README does,
  and fine-tunes for the rest under the common cosine; or, *two cosines*, with a cosine for each half, the
  second a tenth as high, as in its benchmark for CIFAR. `--contender` has more of its settings; each
  differs in one thing.
- *HESSO* prunes from 10 % to 25 % of the run, as the tutorial of its authors advises. It takes a share of
  groups; the number that gives the FLOPs is searched for beforehand, on the same data, at no cost to it.
  Where one group more or less jumps over them, it gets more FLOPs.
- Runs are of several machines of one kind. The same run on another machine may round differently, which
  changes it as another seed does.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Regime:
    """One sheet."""

    title: str
    words: str
    contenders: Mapping[float, tuple[str, ...]]
    """By budget."""

    task: str = "images"
    depth: int = 20
    epochs: int
    batch_size: int = 128
    recipe: str
    seeds: int = 3
    first_seed: int = 0
    is_sieve: bool = False
    """Short, on images of half the size, tested on what is set aside from those to train on."""

    num_images: int | None = None
    start_epochs: int | None = None
    measure: Measure = ACCURACY
    ahead: Mapping[float, float] = field(default_factory=dict)
    """By budget, what ours has to lead every other way to prune by; elsewhere it must not be behind."""

    surely_ahead: tuple[tuple[float, str], ...] = ()
    """Budgets and contenders of whom the interval has to exclude zero."""

    to_dense: Mapping[float, float] = field(default_factory=dict)
    """By budget, what ours may be behind dense."""

    @property
    def names(self) -> tuple[str, ...]:
        """All contenders, the dense one first."""
        return tuple(
            dict.fromkeys(
                name for budget in sorted(self.contenders, reverse=True) for name in self.contenders[budget]
            )
        )

    @property
    def teacher_epochs(self) -> int:
        """How long the dense model was trained that teaches."""
        return self.start_epochs or self.epochs


_DENSE = {1.0: ("dense",)}
_MOST = ("ours", "torch_pruning", "torch_pruning_two", "filter_norm", "random", "paper")

_SIFTED = (
    *("prior_pulled", "prior_handed", "handed_at_0.45", "plain_norm", "handed_at_0.6", "learned_pulled"),
    *("handed_at_0.3", "even_handed", "norm_handed", "pulled_at_0.6", "learned_handed", "handed_at_0.75"),
)
"""What settings were chosen among."""

REGIMES = {
    "scratch": Regime(
        title="From scratch, until it has learned",
        words="ResNet-{depth}, {images}, {epochs} epochs, batches of {batch}, SGD with momentum 0.9 and "
        "weight decay 5e-4, one cosine from 0.1 after a short warm-up, shifted and mirrored images.",
        contenders={**_DENSE, 0.5: ("ours", "torch_pruning", "filter_norm"), 0.3: _MOST},
        epochs=20,
        recipe="converged",
        surely_ahead=((0.3, "torch_pruning"),),
        to_dense={0.5: 0.3},
    ),
    "pretrained": Regime(
        title="From pretrained weights",
        words="The dense models of the regime `scratch` (ResNet-{depth}, {images}, 20 epochs), each pruned "
        "and fine-tuned for {epochs} epochs: batches of {batch}, SGD, one cosine from 0.02. Torch-"
        "Pruning prunes before the first step, as its README does. *Taught*: half of the loss is the "
        "distance to the dense model's outputs (temperature 2).",
        contenders={
            **_DENSE,
            0.5: ("ours", "ours_taught", "torch_pruning_start", "torch_pruning_start_taught"),
            0.3: ("ours", "ours_taught", "torch_pruning_start", "torch_pruning_start_taught"),
        },
        epochs=10,
        recipe="fine_tuning",
        start_epochs=20,
        ahead={0.3: 0.5},
        to_dense={0.5: 0.3},
    ),
    "language": Regime(
        title="Language: the next byte of Python's sources",
        words="A decoder of 1.2 million parameters (RMSNorm, rotary positions, grouped queries, SwiGLU) on "
        "{images}, split by file; {epochs} times 100 batches of {batch} windows of 256 bytes, AdamW, "
        "one cosine from 0.003.",
        contenders={**_DENSE, 0.5: ("ours", "filter_norm", "uniform", "random", "paper")},
        task="language",
        epochs=15,
        batch_size=32,
        recipe="language",
        measure=BITS,
        to_dense={0.5: 1.5},
    ),
    "paper": Regime(
        title="The paper's first row: ResNet-56 at 0.45",
        words="ResNet-{depth}, {images}, {epochs} epochs (the paper: 300), batches of {batch}, SGD with "
        "momentum 0.9 and weight decay 5e-4, one cosine from 0.1.",
        contenders={**_DENSE, 0.45: ("ours", "torch_pruning")},
        depth=56,
        epochs=30,
        recipe="converged",
        seeds=1,
        to_dense={0.45: 0.3},
    ),
    "short": Regime(
        title="Accuracy at equal FLOPs and equal epochs",
        words="ResNet-{depth}, {images}{num_images}, {epochs} epochs, batches of {batch}, SGD with momentum"
        " 0.9 and weight decay 1e-4, one cosine from 0.1 after a short warm-up, shifted and mirrored "
        "images. Everyone is still learning at the end: a sieve, not a result. The schedule and the "
        "controller were developed with runs of seeds 0 and 1 of it.",
        contenders={
            **_DENSE,
            **dict.fromkeys(
                (0.5, 0.3),
                (
                    *("ours", "scratch", "paper", "oto", "otov2", "filter_norm", "fpgm", "taylor", "random"),
                    *("torch_pruning", "hesso"),
                ),
            ),
        },
        epochs=4,
        recipe="short",
        ahead={0.5: 0.5, 0.3: 1.0},
        to_dense={0.5: 0.3},
    ),
    "sieve": Regime(
        title="A sieve for settings: images",
        words="ResNet-{depth}, {images}{num_images}, {epochs} epochs, batches of {batch}, SGD with momentum"
        " 0.9 and weight decay 5e-4, one cosine from 0.1. To choose settings by, not to compare with others: "
        "look at the test loss.",
        contenders={0.3: _SIFTED},
        epochs=3,
        num_images=12800,
        recipe="converged",
        seeds=2,
        first_seed=10,
        is_sieve=True,
    ),
    "sieve_language": Regime(
        title="A sieve for settings: language",
        words="The decoder of the regime `language` on {images}; {epochs} times 100 batches of {batch} "
        "windows of 256 bytes, AdamW, one cosine from 0.003. To choose settings by, not to compare with "
        "others.",
        contenders={0.5: _SIFTED},
        task="language",
        epochs=3,
        batch_size=8,
        recipe="language",
        measure=BITS,
        seeds=2,
        first_seed=10,
        is_sieve=True,
    ),
}


def introduction(regime: Regime) -> str:
    """What stands over the tables, with places for the sizes of the runs."""
    unit = "percent of the other's" if regime.measure.of_dense else "points"
    return f"{regime.words}\n\n{COMMON.format(unit=unit)}{WHO}"
