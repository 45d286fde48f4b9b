"""The learning rate as a function of the step: takes settings and a step, gives a number. Nothing is remembered between steps."""

from __future__ import annotations

import math

from trainonce.training.settings import Settings


def learning_rate(settings: Settings, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, counted from 0.

    While warming up  lr * (step + 1) / (warm-up steps + 1),  then, with t from 0 to 1 over the rest of the run,

        cosine    min_lr + (lr - min_lr) * (1 + cos(pi * t)) / 2
        step      lr * decay_rate ^ (how many of decay_epochs are over)
    """
    warmup_steps = round(settings.warmup_epochs * steps_per_epoch)
    if step < warmup_steps:
        return settings.lr * (step + 1) / (warmup_steps + 1)
    if settings.sched == "constant":
        return settings.lr
    if settings.sched == "step":
        num_over = sum(step >= round(epoch * steps_per_epoch) for epoch in settings.decay_epochs)
        return settings.lr * settings.decay_rate**num_over
    share = (step - warmup_steps) / max(1, settings.epochs * steps_per_epoch - warmup_steps)
    return settings.min_lr + (settings.lr - settings.min_lr) * (1 + math.cos(math.pi * share)) / 2
