"""A run as plain data: a model and data by name, with all settings. `train` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainonce.data.augmentation import POLICIES
from trainonce.data.catalogue import DataOptions, DataSet, Shape, check_source, describe_data, open_data
from trainonce.data.identity.keeping import check_evaluated, read_identity
from trainonce.data.resizing import with_normalization
from trainonce.data.samples import Samples
from trainonce.errors import DataError, SettingError, UnknownModelError
from trainonce.messages.plain_text import LARGEST_WHOLE, kind_and_reason, shorten, steers
from trainonce.messages.suggestions import did_you_mean
from trainonce.pruning.attachment import find_budget
from trainonce.runs.folder import has_checkpoint
from trainonce.runs.report.live import View
from trainonce.structure.partition import Partition
from trainonce.surgery.inspection import inspect
from trainonce.training.audience import Audience
from trainonce.training.limits import limits_of, setting
from trainonce.training.methods import dropped_for_method
from trainonce.training.origin import Origin, find_origin
from trainonce.training.preparation import prepare
from trainonce.training.results.outcome import Result
from trainonce.training.settings import RENAMED, Settings, as_plain
from trainonce.training.stages import Request, run_stages
from trainonce.training.starts import dropped_defaults
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.names import names_code
from trainonce.zoo.sources import Build, Source, build, check_name

LONGEST_TEXT = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Run(Settings):
    """Everything that defines a run: equal runs give bitwise equal results on equal machines."""

    model: str = setting(
        "cifar:resnet20", "model: cifar:NAME, torchvision:NAME, timm:NAME or module.path:function", str
    )
    data: str = setting(
        "digits", "data: digits, cifar10, cifar100, fashion_mnist, imagenet or folder:PATH", str
    )
    data_dir: str | None = setting(
        None, "folder of the data set's files; missing ones are downloaded there", str
    )
    download: bool = setting(True, "download missing data", bool)
    num_classes: int | None = setting(
        None, "number of classes, if it differs from the data's", int, at_least=2, at_most=1_000_000
    )
    img_size: int | None = setting(
        None, "image height and width in pixels, if it differs from the data's", int, at_least=4, at_most=4096
    )
    augment: str = setting("standard", "data augmentation", str, choices=POLICIES)
    workers: int = setting(
        2, "data loading workers; data sets in memory need none", int, at_least=0, at_most=1024
    )
    max_bad_images: int = setting(10, "skip up to this many broken image files", int, at_least=0)

    @property
    def data_options(self) -> DataOptions:
        """The settings that concern the data."""
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
    """`start` with the values of a YAML file or a command line; SettingError for an unknown name."""
    limits = limits_of(Run)
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name in RENAMED:
            # Files of earlier versions list every setting; one that was never used says nothing.
            if value in (None, [], ()):
                continue
            raise SettingError(
                f"the setting {name} is called {RENAMED[name]} since trainonce 0.2. Rename it; a run that "
                "was started with it can be resumed by trainonce 0.1 only."
            )
        if name not in limits:
            advice = did_you_mean(name, limits) or "trainonce train --help lists all settings."
            raise SettingError(f"unknown setting {shorten(name)}. {advice}")
        found = limits[name]
        check_text(name, value)
        if found.several and isinstance(value, list | tuple):
            changes[name] = tuple(_as_kind(item, found.kind) for item in value)
        else:
            changes[name] = _as_kind(value, found.kind)
    dropped = dropped_defaults(start, changes) | dropped_for_method(start, changes)
    return replace(start, **dropped, **changes)


def check_text(name: str, value: Any) -> None:
    """Raise SettingError for a string that can't be a name or a path: files of strangers are read here."""
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str) and (len(text) > LONGEST_TEXT or steers(text)):
            problem = (
                f"has {len(text):,} characters" if len(text) > LONGEST_TEXT else "has control characters"
            )
            raise SettingError(f"{name} {problem}. Correct it: {shorten(text)}.")


def scale_epochs(run: Run, epochs: int) -> Run:
    """The run with another number of epochs; its learning rate schedule is scaled with it."""
    ratio = epochs / run.epochs
    return replace(
        run,
        epochs=epochs,
        warmup_epochs=round(run.warmup_epochs * ratio, 6),
        decay_epochs=tuple(round(point * ratio, 6) for point in run.decay_epochs),
    )


def check_run(run: Run) -> None:
    """Raise an error if the model or the data set doesn't exist; nothing is loaded."""
    check_name(run.model)
    check_source(run.data, run.data_options)


def open_run_data(run: Run) -> DataSet:
    """The data set of a run."""
    return open_data(run.data, run.data_options)


def open_kept_data(run: Run, folder: Path, *, is_named: bool) -> DataSet:
    """The data set of a finished run, normalized as in training.

    DataChangedError if the validation data has changed; a warning instead, if the user named it (`is_named`).
    """
    data = with_normalization(open_run_data(run), read_identity(folder))
    check_evaluated(folder, data, is_named=is_named)
    return data


def open_plain_training_data(run: Run, folder: Path) -> Samples:
    """The training samples of a finished run without augmentation, normalized as in training."""
    return with_normalization(open_run_data(replace(run, augment="none")), read_identity(folder)).train


def find_shape(run: Run) -> tuple[Run, DataSet | Shape | None]:
    """Classes and image size of the run's data, if they are known without reading it.

    The run records a size that was measured on its images, so that repeating and resuming it keep that size.
    """
    shape = describe_data(run.data, run.data_options)
    if shape is not None and run.img_size is None and run.data.startswith("folder:"):
        run = replace(run, img_size=shape.image_size)
    return run, shape


def build_run_model(run: Run, data: DataSet | Shape) -> nn.Module:
    """The model of a run, to load weights into: nothing is downloaded."""
    return _build(run, data, is_empty=True).model


def _build(run: Run, data: DataSet | Shape, *, is_empty: bool) -> Source:
    """The model of a run with its initial weights, which depend on the seed.

    An empty one has no pretrained weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        wanted = Build(
            num_classes=run.num_classes or data.num_classes,
            image_size=data.image_size,
            pretrained=run.pretrained,
            is_empty=is_empty,
        )
        found = build(run.model, wanted=wanted)
    _check_output(run, found.model, data)
    return found


def _origin_of(run: Run, source: Source, *, out: Path | None, resume: bool) -> Origin:
    """Where the model's weights come from: its library, or a file, which is read here."""
    if not run.pretrained or names_code(run.model):
        return find_origin(run, source.model, out=out, resume=resume)
    said = f"pretrained weights of {source.name}"
    return Origin(said if source.new_head is None else f"{said}; {source.new_head}", new_head=source.new_head)


def inspect_within_budget(run: Run, model: nn.Module, shape: DataSet | Shape) -> Partition | None:
    """The model's channel groups, or None for a dense run; BudgetError if the budget can't be reached."""
    if not run.is_pruning:
        return None
    example = draw_image(2, 3, shape.image_size, shape.image_size)
    partition = inspect(model, example, protect=run.protect, streams=run.streams)
    find_budget(
        model,
        example=partition,
        trained={name for name, parameter in model.named_parameters() if parameter.requires_grad},
        keep_flops=run.keep_flops,
        keep_params=run.keep_params,
        protect=run.protect,
        streams=run.streams,
        round_to=run.round_to,
        uniform=run.uniform,
    )
    return partition


def train(
    run: Run, *, out: Path | None, resume: bool, view: View | None, data: DataSet | None = None
) -> Result:
    """Do a run that `check_run` has accepted; on `data`, if it is opened already, or a part of it.

    Device, model and budget are checked before the data is read, which may be a long download.
    """
    run, shape = find_shape(run)
    prepared = prepare(run)
    if shape is None:
        shape = data = data or open_run_data(run)
    # A checkpoint has all weights, so that a resumed run needs no download.
    is_empty = resume and out is not None and has_checkpoint(out)
    source = _build(run, shape, is_empty=is_empty)
    model = source.model
    origin = _origin_of(run, source, out=out, resume=resume)
    partition = inspect_within_budget(run, model, shape)
    data = data or open_run_data(run)
    if (data.num_classes, data.image_size) != (shape.num_classes, shape.image_size):
        raise DataError(
            f"{run.data} was described as {shape.num_classes} classes of {shape.image_size} pixels, and has "
            f"{data.num_classes} of {data.image_size}. Correct the shape that it is registered with."
        )
    request = Request(
        model=model,
        data=data,
        prepared=prepared,
        config=as_plain(run),
        out=out,
        resume=resume,
        audience=Audience(view=view),
        origin=origin,
        partition=partition,
    )
    return run_stages(request)


@torch.no_grad()
def _check_output(run: Run, model: nn.Module, data: DataSet | Shape) -> None:
    image = torch.zeros(2, 3, data.image_size, data.image_size)
    try:
        output = model.eval()(image)
    except Exception as error:
        raise UnknownModelError(
            f"{run.model} fails on images of {data.image_size} pixels ({kind_and_reason(error)}). Choose "
            "another --img-size or another model."
        ) from None
    found = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
    if not isinstance(found, torch.Tensor) or found.dim() != 2 or found.shape[1] < data.num_classes:
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise DataError(
            f"{run.model} returns {shape} for two images, and {run.data} has {data.num_classes} classes. "
            "Choose a classifier for them."
        )


def _as_kind(value: Any, kind: type) -> Any:
    """The value, with integers as floats where a float is expected: 1 and 1.0 are the same setting."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_WHOLE
    return float(value) if kind is float and is_whole else value
