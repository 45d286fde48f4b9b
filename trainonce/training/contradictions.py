"""Settings that contradict each other: each pair is refused in one line."""

from __future__ import annotations

from typing import Any

from trainonce.errors import SettingError


def check_pairs(settings: Any) -> None:
    """Raise SettingError if two settings contradict each other."""
    if settings.pretrained and settings.weights is not None:
        raise SettingError("pretrained and weights are both set. Pass one of them.")
    if settings.weights_sha256 is not None and settings.weights is None:
        raise SettingError("weights_sha256 is set without weights. Pass the file, too, or leave it out.")
    if settings.teacher and not settings.pretrained and settings.weights is None:
        raise SettingError(
            "teacher is a copy of the initial model, and this run starts from scratch. "
            "Also pass pretrained or weights; or pass a trained model as teacher to fit."
        )
    if settings.keep_flops is not None and settings.keep_params is not None:
        raise SettingError("keep_flops and keep_params are both set. Pass one of them.")
    if not settings.search_from <= settings.shrink_from <= settings.settle_from:
        raise SettingError(
            "search_from, shrink_from and settle_from must be in ascending order, got "
            f"{settings.search_from}, {settings.shrink_from} and {settings.settle_from}. The defaults are "
            f"{settings.start.search_from}, {settings.start.shrink_from} and {settings.start.settle_from}."
        )
    first = settings.first_cut_from
    if first is not None and not settings.shrink_from <= first <= settings.settle_from:
        raise SettingError(
            f"first_cut_from must lie between shrink_from and settle_from, got {first}, "
            f"{settings.shrink_from} and {settings.settle_from}."
        )
    if settings.search_from >= settings.settle_from:
        raise SettingError(
            f"search_from must be below settle_from, got {settings.search_from} and {settings.settle_from}: "
            "there would be no search."
        )
    if settings.min_lr > settings.lr:
        raise SettingError(f"min_lr must be at most lr, got {settings.min_lr} and {settings.lr}.")
    if settings.warmup_epochs >= settings.epochs:
        raise SettingError(
            f"warmup_epochs must be below epochs, got {settings.warmup_epochs} and {settings.epochs}."
        )
    if settings.sched == "step" and not settings.decay_epochs:
        raise SettingError("sched step needs decay_epochs, such as 150 225. Set them, or use sched cosine.")
    if any(
        late <= early for early, late in zip(settings.decay_epochs, settings.decay_epochs[1:], strict=False)
    ):
        raise SettingError(f"decay_epochs must be in ascending order, got {settings.decay_epochs}.")
    if settings.nesterov and (settings.opt != "sgd" or settings.momentum == 0):
        raise SettingError("nesterov needs opt sgd and a momentum above 0. Leave it out, or change those.")
    if settings.batch_size is not None and settings.accumulate > settings.batch_size:
        raise SettingError(
            f"accumulate must be at most batch_size, got {settings.accumulate} and {settings.batch_size}."
        )
