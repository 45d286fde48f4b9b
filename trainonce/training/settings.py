"""How a run trains: every number of it as plain data that checks itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from trainonce.schedule import Schedule
from trainonce.training.limits import BadSetting, check_fields, setting
from trainonce.training.optimizers import OPTIMIZERS
from trainonce.training.policies import DEFAULT_POLICY, POLICIES

DEFAULT_BATCH_SIZE = 128
NO_BUDGET = (
    "no budget: pass keep_flops=0.5 (or keep_params), or keep_flops=1 to train the whole model; to the command --keep-flops 0.5 or 1."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything about a training run but its model and its data."""

    keep_flops: float | None = setting(
        None, "share of the model's FLOPs that the small model may have; 1 trains the whole model", float, above=0, at_most=1
    )
    keep_params: float | None = setting(None, "share of the model's parameters that the small model may have", float, above=0, at_most=1)
    keep: tuple[str, ...] = setting((), "groups or modules to leave whole, such as 'layer4.*'", str, several=True)
    round_to: int | None = setting(
        None, "make widths multiples of this; by default of a sixteenth of the layer, at most 16", int, at_least=1
    )
    search_from: float = setting(0.05, "share of the run after which masks are searched", float, at_least=0, below=1)
    shrink_from: float = setting(0.10, "share of the run after which masked channels are pulled to zero", float, at_least=0, below=1)
    first_cut_from: float | None = setting(
        None,
        "share of the run after which a first part is cut out; by default 0.2; as settle_from: all at once",
        float,
        above=0,
        below=1,
    )
    settle_from: float = setting(0.45, "share of the run after which the masks are final", float, above=0, below=1)
    policy: str = setting(DEFAULT_POLICY, f"what chooses which channels stay: {', '.join(POLICIES)}", str)
    controller_share: float = setting(0.05, "share of the training data that the masks are searched on", float, above=0, at_most=1)

    epochs: int = setting(100, "passes over the training data", int, at_least=1, at_most=1_000_000)
    batch_size: int | None = setting(
        None,
        "samples per optimizer step, over all processes; by default 128, or what a DataLoader says",
        int,
        at_least=2,
        at_most=1_048_576,
    )
    accumulate: int = setting(1, "pieces that a process takes its share of a batch in, to save memory", int, at_least=1, at_most=65_536)
    opt: str = setting("sgd", "optimizer", str, choices=tuple(OPTIMIZERS))
    lr: float = setting(0.1, "highest learning rate", float, above=0, at_most=100)
    momentum: float = setting(0.9, "momentum of sgd and rmsprop", float, at_least=0, below=1)
    nesterov: bool = setting(False, "Nesterov's momentum for sgd", bool)
    weight_decay: float = setting(1e-4, "weight decay", float, at_least=0, below=1)
    sched: str = setting("cosine", "how the learning rate falls", str, choices=("cosine", "step", "constant"))
    warmup_epochs: float = setting(0.0, "epochs in which the learning rate rises", float, at_least=0)
    min_lr: float = setting(0.0, "learning rate at the end of a cosine", float, at_least=0)
    decay_epochs: tuple[float, ...] = setting((), "epochs after which --sched step lowers the learning rate", float, several=True, above=0)
    decay_rate: float = setting(0.1, "what --sched step multiplies the learning rate by", float, above=0, below=1)
    clip_grad: float | None = setting(None, "largest norm of all gradients together", float, above=0)

    smoothing: float = setting(0.0, "label smoothing", float, at_least=0, below=1)
    mixup: float = setting(0.0, "alpha of mixup; 0 is off", float, at_least=0, at_most=100)
    cutmix: float = setting(0.0, "alpha of cutmix; 0 is off", float, at_least=0, at_most=100)
    model_ema: bool = setting(False, "also average the weights, and give the average as result", bool)
    model_ema_decay: float = setting(0.9998, "how much of the average stays at each step", float, above=0, below=1)

    amp: bool = setting(False, "mixed precision", bool)
    amp_dtype: str = setting("bfloat16", "number format of mixed precision", str, choices=("bfloat16", "float16"))
    channels_last: bool = setting(False, "memory layout with the channels last", bool)
    compile: bool = setting(False, "run the model through torch.compile", bool)
    device: str = setting("auto", "where to train: auto, cpu, cuda, cuda:1, mps", str)
    seed: int = setting(0, "seed of weights, order, augmentation and search", int, at_least=0, at_most=2**63 - 1)
    deterministic: bool = setting(False, "refuse operators that give other bits each time", bool)

    max_bad_steps: int = setting(10, "steps in a row with a loss or gradient that is not finite before the run stops", int, at_least=1)
    save_minutes: float = setting(10.0, "minutes between checkpoints", float, at_least=0)
    save_epochs: int = setting(1, "epochs between checkpoints; 0 leaves it to the minutes", int, at_least=0)
    keep_checkpoints: int = setting(2, "newest checkpoints that stay", int, at_least=1)
    tensorboard: bool = setting(False, "write scalars for TensorBoard", bool)

    def __post_init__(self) -> None:
        check_fields(self)
        check_pairs(self)

    @property
    def is_pruning(self) -> bool:
        """Whether anything is to be cut."""
        return self.budget is not None and self.budget < 1

    @property
    def budget(self) -> float | None:
        """The share of FLOPs or parameters that may stay, whichever is asked for."""
        return self.keep_flops if self.keep_flops is not None else self.keep_params

    @property
    def samples_per_step(self) -> int:
        """The batch size that counts where no loader says another."""
        return DEFAULT_BATCH_SIZE if self.batch_size is None else self.batch_size

    @property
    def schedule(self) -> Schedule:
        """When the phases of the search begin."""
        return Schedule(
            search_from=self.search_from, shrink_from=self.shrink_from, first_cut_from=self.first_cut_from, settle_from=self.settle_from
        )


RESUMABLE = frozenset(("device", "save_minutes", "save_epochs", "keep_checkpoints", "tensorboard", "accumulate"))
"""Settings that may differ when a run goes on: they change where and how often, not what is computed (accumulation up to rounding)."""


def check_budget(settings: Settings) -> None:
    """Raise BadSetting if nothing says how small the model is to become."""
    if settings.budget is None:
        raise BadSetting(NO_BUDGET)


def check_pairs(settings: Settings) -> None:
    """Raise BadSetting where two settings contradict each other."""
    if settings.keep_flops is not None and settings.keep_params is not None:
        raise BadSetting("keep_flops and keep_params are both given. Give one of them.")
    if not settings.search_from <= settings.shrink_from <= settings.settle_from:
        raise BadSetting(
            f"search_from, shrink_from and settle_from must not fall, got {settings.search_from}, {settings.shrink_from}, "
            f"{settings.settle_from}. The defaults are 0.05, 0.1 and 0.45."
        )
    first = settings.first_cut_from
    if first is not None and not settings.shrink_from <= first <= settings.settle_from:
        raise BadSetting(
            f"first_cut_from must lie from shrink_from to settle_from, got {first}, {settings.shrink_from} and {settings.settle_from}."
        )
    if settings.search_from >= settings.settle_from:
        raise BadSetting(
            f"search_from must be below settle_from, got {settings.search_from} and {settings.settle_from}: nothing is searched."
        )
    if settings.min_lr > settings.lr:
        raise BadSetting(f"min_lr must be at most lr, got {settings.min_lr} and {settings.lr}.")
    if settings.warmup_epochs >= settings.epochs:
        raise BadSetting(f"warmup_epochs must be below epochs, got {settings.warmup_epochs} and {settings.epochs}.")
    if settings.sched == "step" and not settings.decay_epochs:
        raise BadSetting("sched step needs decay_epochs, such as 150 225. Give them, or take sched cosine.")
    if any(late <= early for early, late in zip(settings.decay_epochs, settings.decay_epochs[1:], strict=False)):
        raise BadSetting(f"decay_epochs must rise, got {settings.decay_epochs}.")
    if settings.nesterov and (settings.opt != "sgd" or settings.momentum == 0):
        raise BadSetting("nesterov needs opt sgd and a momentum above 0. Leave it out, or change them.")
    if settings.batch_size is not None and settings.accumulate > settings.batch_size:
        raise BadSetting(f"accumulate must be at most batch_size, got {settings.accumulate} and {settings.batch_size}.")


def as_plain(settings: Settings) -> dict[str, Any]:
    """The settings as JSON and YAML take them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}


def with_changes(settings: Settings, **changes: Any) -> Settings:
    """The settings with those changes that are not None."""
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})
