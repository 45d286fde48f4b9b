"""One command-line flag per setting of a run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from trainonce.messages.limits import Limits
from trainonce.messages.plain_text import shorten
from trainonce.recipes.run import Run
from trainonce.training.limits import defaults_of, limits_of

SHORT = {"batch_size": ("-b",), "workers": ("-j",)}
SECTIONS = {
    "model and data": "model data data_dir download pretrained weights weights_sha256 num_classes "
    "img_size augment workers max_bad_images",
    "pruning": "keep_flops keep_params protect streams round_to uniform method search_from shrink_from "
    "first_cut_from settle_from zero_within policy controller_share",
    "training": "epochs batch_size accumulate opt lr momentum nesterov weight_decay sched warmup_epochs "
    "min_lr decay_epochs decay_rate clip_grad smoothing mixup cutmix model_ema model_ema_decay "
    "teacher teacher_weight teacher_temperature",
    "hardware and reproducibility": "device amp amp_dtype channels_last compile seed deterministic",
    "checkpoints and logs": "max_bad_steps save_minutes save_epochs keep_checkpoints tensorboard wandb "
    "mlflow",
}
"""The settings as --help groups them."""


def add_setting_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag per setting; flags that are not given leave no attribute."""
    limits, defaults = limits_of(Run), defaults_of(Run)
    for title, names in SECTIONS.items():
        section = parser.add_argument_group(title)
        for name in names.split():
            _add_flag(section, name, limits[name], defaults[name])


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given on the command line."""
    return {name: getattr(arguments, name) for name in limits_of(Run) if hasattr(arguments, name)}


def _add_flag(section: Any, name: str, limits: Limits, default: Any) -> None:
    flags = (*SHORT.get(name, ()), f"--{name.replace('_', '-')}")
    shown = (
        "none"
        if default is None or default == ()
        else str(default).lower()
        if isinstance(default, bool)
        else f"{default}"
    )
    help_text = f"{limits.help} (default: {shown})".replace("%", "%%")
    options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": help_text}
    if limits.kind is bool:
        section.add_argument(*flags, action=argparse.BooleanOptionalAction, **options)
        return
    options |= {"type": _reader(limits), "metavar": _metavar(name, limits)}
    if limits.several:
        options |= {"nargs": "+", "action": "extend"}
    section.add_argument(*flags, **options)


def _metavar(name: str, limits: Limits) -> str:
    if limits.choices:
        return "{" + ",".join(limits.choices) + "}"
    return {int: "N", float: "X", str: name.upper()}[limits.kind]


def _reader(limits: Limits) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = limits.kind(text)
        except ValueError:
            value = None
        if value is None or not limits.allows(value):
            given = text if value is None else value
            raise argparse.ArgumentTypeError(
                f"must be {limits.describe()}, got {shorten(text)}.{limits.suggest(given)}"
            )
        return value

    return read
