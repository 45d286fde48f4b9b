"""A run as plain data, and the run itself.

Takes names of a model and of data with all settings, gives what `fit` gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainonce.data.augmentation import POLICIES
from trainonce.data.catalogue import DataOptions, DataSet, Shape, check_source, describe_data, open_data
from trainonce.data.identity.keeping import check_evaluated, read_identity
from trainonce.data.resizing import with_normalization
from trainonce.errors import DataError, SettingError, UnknownModelError
from trainonce.messages.plain_text import LARGEST_WHOLE, reason_of, shorten, steers
from trainonce.pruning.attachment import find_budget
from trainonce.runs.report.live import View
from trainonce.runs.scalars import check_installed
from trainonce.training.fitting import fit
from trainonce.training.limits import limits_of, setting
from trainonce.training.loop.precision import choose_precision
from trainonce.training.loop.processes import choose_device
from trainonce.training.policy_names import find_policy
from trainonce.training.results.outcome import Result
from trainonce.training.settings import Settings, as_plain, check_budget
from trainonce.zoo.sources import Build, build, check_name

LONGEST_TEXT = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Run(Settings):
    """Everything that a run is; equal runs give equal bits on equal machines."""

    model: str = setting(
        "cifar:resnet20", "model: cifar:NAME, torchvision:NAME, timm:NAME or module.path:function", str
    )
    data: str = setting(
        "digits", "data: digits, cifar10, cifar100, fashion_mnist, imagenet or folder:PATH", str
    )
    data_dir: str | None = setting(None, "where the data's files are, or are downloaded to", str)
    download: bool = setting(True, "download data that is not there", bool)
    pretrained: bool = setting(False, "start from the library's trained weights", bool)
    num_classes: int | None = setting(
        None, "classes of the model, if other than the data's", int, at_least=2, at_most=1_000_000
    )
    img_size: int | None = setting(
        None, "height and width of the images, if other than the data's own", int, at_least=4, at_most=4096
    )
    augment: str = setting("standard", "how training images are changed", str, choices=POLICIES)
    workers: int = setting(
        2, "processes that read image files; images in memory need none", int, at_least=0, at_most=1024
    )
    max_bad_images: int = setting(
        10, "broken image files that are skipped before the run stops", int, at_least=0
    )

    @property
    def data_options(self) -> DataOptions:
        """How the data is opened."""
        return DataOptions(
            data_dir=None if self.data_dir is None else Path(self.data_dir),
            image_size=self.img_size,
            augment=self.augment,
            num_workers=self.workers,
            seed=self.seed,
            download=self.download,
            max_bad_images=self.max_bad_images,
        )


def run_from(values: Mapping[str, Any], start: Run) -> Run:
    """`start` with other values, as a YAML file or a command line gives them.

    Unknown names are refused with the nearest one.
    """
    limits = limits_of(Run)
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name not in limits:
            near = get_close_matches(name, limits, n=1, cutoff=0.5)
            advice = f"Did you mean {near[0]}?" if near else "trainonce train --help lists all settings."
            raise SettingError(f"there is no setting {shorten(name)}. {advice}")
        found = limits[name]
        check_text(name, value)
        if found.several and isinstance(value, list | tuple):
            changes[name] = tuple(_as_kind(item, found.kind) for item in value)
        else:
            changes[name] = _as_kind(value, found.kind)
    return replace(start, **changes)


def check_text(name: str, value: Any) -> None:
    """Raise SettingError for a text that can't be a name or a path: a stranger's are printed and opened."""
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str) and (len(text) > LONGEST_TEXT or steers(text)):
            problem = (
                f"has {len(text):,} characters" if len(text) > LONGEST_TEXT else "holds control characters"
            )
            raise SettingError(f"{name} {problem}. Write it anew: {shorten(text)}.")


def scale_epochs(run: Run, epochs: int) -> Run:
    """The run with another number of epochs, and every point of its schedule at the same share of it."""
    ratio = epochs / run.epochs
    return replace(
        run,
        epochs=epochs,
        warmup_epochs=round(run.warmup_epochs * ratio, 6),
        decay_epochs=tuple(round(point * ratio, 6) for point in run.decay_epochs),
    )


def check_run(run: Run) -> None:
    """Raise what is wrong with the names of model and data; nothing is loaded."""
    check_name(run.model)
    check_source(run.data, run.data_options)


def check_before_data(run: Run) -> None:
    """Raise what is wrong with device, model and budget while nothing is read yet.

    For that, the model is built and inspected.
    """
    find_policy(run.policy)
    if run.tensorboard:
        check_installed()
    device = choose_device(run.device)
    choose_precision(device, amp=run.amp, amp_dtype=run.amp_dtype)
    shape = describe_data(run.data, run.data_options)
    if shape is None:
        check_budget(run)
        return
    # Trained weights may be a long download; budgets depend on shapes alone.
    model = build_run_model(replace(run, pretrained=False), shape)
    check_budget(run)
    if run.is_pruning:
        find_budget(
            model,
            example=torch.zeros(2, 3, shape.image_size, shape.image_size),
            trained={name for name, parameter in model.named_parameters() if parameter.requires_grad},
            keep_flops=run.keep_flops,
            keep_params=run.keep_params,
            protect=run.keep,
            round_to=run.round_to,
        )


def open_run_data(run: Run) -> DataSet:
    """The data of a run."""
    return open_data(run.data, run.data_options)


def open_kept_data(run: Run, folder: Path, *, is_named: bool) -> DataSet:
    """The data of the run in a folder, to measure its model on, normalized as in training.

    Validation data that has changed is refused; if `is_named`, the user asked for it and gets a warning.
    """
    data = with_normalization(open_run_data(run), read_identity(folder))
    check_evaluated(folder, data, is_named=is_named)
    return data


def with_own_size(run: Run) -> Run:
    """The run with the size that is measured on its images, so that repeating and resuming it keep that."""
    if run.img_size is not None or not run.data.startswith("folder:"):
        return run
    shape = describe_data(run.data, run.data_options)
    return run if shape is None else replace(run, img_size=shape.image_size)


def build_run_model(run: Run, data: DataSet | Shape) -> nn.Module:
    """The model of a run with the weights it starts from, which its seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        wanted = Build(
            num_classes=run.num_classes or data.num_classes,
            image_size=data.image_size,
            pretrained=run.pretrained,
        )
        model = build(run.model, wanted=wanted).model
    _check_output(run, model, data)
    return model


def train(run: Run, *, out: Path | None, resume: bool, view: View | None) -> Result:
    """Do the run."""
    check_run(run)
    run = with_own_size(run)
    check_before_data(run)
    data = open_run_data(run)
    model = build_run_model(run, data)
    return fit(model, data, settings=run, out=out, resume=resume, config=as_plain(run), view=view)


@torch.no_grad()
def _check_output(run: Run, model: nn.Module, data: DataSet | Shape) -> None:
    image = torch.zeros(2, 3, data.image_size, data.image_size)
    try:
        output = model.eval()(image)
    except Exception as error:
        reason = f"{type(error).__name__}: {reason_of(error)}"
        raise UnknownModelError(
            f"{run.model} can't take images of {data.image_size} pixels ({reason}). Give another --img-size, "
            "or another model."
        ) from None
    found = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
    if not isinstance(found, torch.Tensor) or found.dim() != 2 or found.shape[1] < data.num_classes:
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise DataError(
            f"{run.model} gives {shape} for two images, and {run.data} has {data.num_classes} classes. Give "
            "a classifier for them."
        )


def _as_kind(value: Any, kind: type) -> Any:
    """Whole numbers for floats, so that 1 and 1.0 are the same setting."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_WHOLE
    return float(value) if kind is float and is_whole else value
