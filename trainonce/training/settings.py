"""Every setting of a training run, as plain data that validates itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from trainonce.errors import SettingError
from trainonce.pruning.schedule import Schedule, Strength
from trainonce.teaching.teacher import TEMPERATURE, WEIGHT
from trainonce.training.contradictions import check_pairs
from trainonce.training.limits import check_fields, dependent_setting, setting
from trainonce.training.methods import DEFAULT_METHOD, METHODS, check_method, with_method
from trainonce.training.optimizers import OPTIMIZERS
from trainonce.training.policy_names import POLICIES
from trainonce.training.starts import (
    FINE_TUNING,
    FROM_SCRATCH,
    Start,
    other_when_fine_tuning,
    start_of,
)

DEFAULT_BATCH_SIZE = 128
NO_BUDGET = (
    "no budget: pass keep_flops=0.5 (or keep_params), or keep_flops=1 to train the dense model; on the "
    "command line --keep-flops 0.5 or 1."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything about a training run except its model and data."""

    pretrained: bool = setting(
        False,
        "start from pretrained weights, with defaults for fine-tuning (in fit: the model already has them)",
        bool,
    )
    weights: str | None = setting(
        None,
        "start from the weights in this file (.safetensors or a torch.save checkpoint), "
        "with defaults for fine-tuning",
        str,
    )
    weights_sha256: str | None = setting(
        None, "refuse a weights file with a different sha256; a run records the one it used", str
    )
    teacher: bool = setting(
        False,
        "also learn from a frozen copy of the initial model (distillation); needs pretrained or weights",
        bool,
    )
    teacher_weight: float = setting(WEIGHT, "the teacher's share of the loss", float, above=0, at_most=1)
    teacher_temperature: float = setting(
        TEMPERATURE,
        "softmax temperature of the distillation loss",
        float,
        above=0,
        at_most=1000,
    )

    keep_flops: float | None = setting(
        None,
        "fraction of the model's FLOPs that the small model may use; 1 trains the dense model",
        float,
        above=0,
        at_most=1,
    )
    keep_params: float | None = setting(
        None, "fraction of the model's parameters that the small model may have", float, above=0, at_most=1
    )
    protect: tuple[str, ...] = setting(
        (), "modules or groups that must not be pruned, such as 'layer4.*'", str, several=True
    )
    streams: bool = setting(
        False, "whether channels under a LayerNorm may be pruned, such as the width of a ViT", bool
    )
    round_to: int | None = setting(
        None,
        "round channel counts to multiples of this; by default a sixteenth of the layer, at most 16",
        int,
        at_least=1,
    )
    uniform: bool = setting(
        False,
        "keep equally many channels in the same layers of repeated blocks, as most model formats want it",
        bool,
    )
    method: str = setting(
        DEFAULT_METHOD,
        "pruning method; paper: the paper's controller, phases and constant lambda, with a single cut",
        str,
        choices=tuple(METHODS),
    )
    search_from: float = dependent_setting(
        f"fraction of the run after which the mask search starts{other_when_fine_tuning('search_from')}",
        float,
        at_least=0,
        below=1,
    )
    shrink_from: float = dependent_setting(
        "fraction of the run after which masked channels are pulled to zero"
        f"{other_when_fine_tuning('shrink_from')}",
        float,
        at_least=0,
        below=1,
    )
    first_cut_from: float | None = setting(
        None,
        "fraction of the run at which the first channels are cut; by default 0.2"
        f"{other_when_fine_tuning('first_cut_from')}; equal to settle_from: a single cut",
        float,
        above=0,
        below=1,
    )
    settle_from: float = dependent_setting(
        f"fraction of the run after which the masks are final{other_when_fine_tuning('settle_from')}",
        float,
        above=0,
        below=1,
    )
    zero_within: float = dependent_setting(
        "fraction of the run over which dropped channels are driven to zero before the cut"
        f"{other_when_fine_tuning('zero_within')}",
        float,
        above=0,
        at_most=1,
    )
    policy: str = dependent_setting(
        f"how channels are scored; filter_norm when fine-tuning: {', '.join(POLICIES)}", str
    )
    controller_share: float = dependent_setting(
        "fraction of the training data that the mask search uses", float, above=0, at_most=1
    )

    epochs: int = setting(100, "passes over the training data", int, at_least=1, at_most=1_000_000)
    batch_size: int | None = setting(
        None,
        "effective batch size: samples per optimizer step, over all processes and accumulation steps (unlike "
        "timm, where it is per process and forward pass); by default 128, or the DataLoader's",
        int,
        at_least=2,
        at_most=1_048_576,
    )
    accumulate: int = setting(
        1,
        "gradient accumulation steps: split each batch into this many pieces to save memory (unlike timm's "
        "grad_accum_steps, the effective batch size stays the same)",
        int,
        at_least=1,
        at_most=65_536,
    )
    opt: str = setting("sgd", "optimizer", str, choices=tuple(OPTIMIZERS))
    lr: float = dependent_setting(
        f"peak learning rate; {FROM_SCRATCH.adaptive_lr:g} for adam, adamw and nadam"
        f"{other_when_fine_tuning('lr')}, and {FINE_TUNING.adaptive_lr:g} for those",
        float,
        above=0,
        at_most=100,
    )
    momentum: float = setting(0.9, "momentum of sgd and rmsprop", float, at_least=0, below=1)
    nesterov: bool = setting(False, "Nesterov momentum (sgd only)", bool)
    weight_decay: float = setting(1e-4, "weight decay", float, at_least=0, below=1)
    sched: str = setting("cosine", "learning rate schedule", str, choices=("cosine", "step", "constant"))
    warmup_epochs: float = dependent_setting("epochs of learning rate warmup", float, at_least=0)
    min_lr: float = setting(0.0, "final learning rate of the cosine schedule", float, at_least=0)
    decay_epochs: tuple[float, ...] = setting(
        (), "epochs at which --sched step lowers the learning rate", float, several=True, above=0
    )
    decay_rate: float = setting(
        0.1, "factor by which --sched step lowers the learning rate", float, above=0, below=1
    )
    clip_grad: float | None = setting(None, "clip the gradient norm to this", float, above=0)

    smoothing: float = setting(0.0, "label smoothing", float, at_least=0, below=1)
    mixup: float = setting(0.0, "mixup alpha; 0 is off", float, at_least=0, at_most=100)
    cutmix: float = setting(0.0, "cutmix alpha; 0 is off", float, at_least=0, at_most=100)
    model_ema: bool = setting(
        False, "keep an exponential moving average of the weights, and return that model", bool
    )
    model_ema_decay: float = setting(
        0.9998, "decay of the exponential moving average", float, above=0, below=1
    )

    amp: bool = setting(False, "automatic mixed precision", bool)
    amp_dtype: str = setting("bfloat16", "dtype of mixed precision", str, choices=("bfloat16", "float16"))
    channels_last: bool = setting(False, "channels-last memory format", bool)
    compile: bool = setting(False, "compile the model with torch.compile", bool)
    device: str = setting("auto", "device: auto, cpu, cuda, cuda:1, mps", str)
    seed: int = setting(
        0, "seed for weights, data order, augmentation and search", int, at_least=0, at_most=2**63 - 1
    )
    deterministic: bool = setting(False, "raise an error on nondeterministic operators", bool)

    max_bad_steps: int = setting(
        10, "stop after this many consecutive steps with a NaN or infinite loss or gradient", int, at_least=1
    )
    save_minutes: float = setting(10.0, "minutes between checkpoints", float, at_least=0)
    save_epochs: int = setting(1, "epochs between checkpoints; 0 saves by time only", int, at_least=0)
    keep_checkpoints: int = setting(2, "number of checkpoints to keep", int, at_least=1)
    tensorboard: bool = setting(False, "write TensorBoard logs", bool)
    wandb: bool = setting(False, "log to Weights & Biases, to the project in WANDB_PROJECT", bool)
    mlflow: bool = setting(
        False, "log to MLflow, as set in MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME", bool
    )

    def __post_init__(self) -> None:
        for name, default in self.defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        check_fields(self)
        check_method(self)
        check_pairs(self)

    @property
    def start(self) -> Start:
        """Where the run starts from, with the defaults that are in force."""
        return start_of(pretrained=self.pretrained, weights=self.weights)

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults that depend on the start, the optimizer and the method."""
        return with_method(self.start.defaults(self.opt), self.method)

    @property
    def is_pruning(self) -> bool:
        """Whether the budget asks for pruning."""
        return self.budget is not None and self.budget < 1

    @property
    def budget(self) -> float | None:
        """The fraction of FLOPs or parameters to keep, whichever is set."""
        return self.keep_flops if self.keep_flops is not None else self.keep_params

    @property
    def samples_per_step(self) -> int:
        """The effective batch size, if no DataLoader says otherwise."""
        return DEFAULT_BATCH_SIZE if self.batch_size is None else self.batch_size

    @property
    def schedule(self) -> Schedule:
        """When each phase of pruning starts."""
        return Schedule(
            search_from=self.search_from,
            shrink_from=self.shrink_from,
            first_cut_from=self.first_cut_from,
            settle_from=self.settle_from,
        )

    @property
    def strength(self) -> Strength:
        """How hard channels are pulled to zero."""
        return Strength(zero_within=self.zero_within)


RENAMED = {"keep": "protect"}
"""Settings of trainonce 0.1, and what they are called now."""

RESUMABLE = frozenset(
    (
        "device",
        "save_minutes",
        "save_epochs",
        "keep_checkpoints",
        "tensorboard",
        "wandb",
        "mlflow",
        "accumulate",
    )
)
"""Settings that may change when a run is resumed: they don't affect what is computed, but for rounding."""


def check_budget(settings: Settings) -> None:
    """Raise SettingError if there is neither keep_flops nor keep_params."""
    if settings.budget is None:
        raise SettingError(NO_BUDGET)


def as_plain(settings: Settings) -> dict[str, Any]:
    """The settings as plain values for JSON and YAML."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()
    }


def with_changes(settings: Settings, **changes: Any) -> Settings:
    """A copy of the settings with every change that is not None."""
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})
