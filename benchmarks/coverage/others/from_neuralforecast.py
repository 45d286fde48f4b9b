"""Forecasters of neuralforecast; each is called with one dict of windows, as its own training does."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from neuralforecast import models

from benchmarks.coverage.others.catalogue import Built

_INPUT = 24
_HORIZON = 8
_SERIES = 3
_COMMON: dict[str, Any] = {
    "h": _HORIZON,
    "input_size": _INPUT,
    "max_steps": 1,
    "enable_progress_bar": False,
    "logger": False,
    "enable_checkpointing": False,
}


def _of_windows(kind: str, **settings: Any) -> Built:
    model = getattr(models, kind)(**_COMMON, **settings)
    return model, (_windows(1),)


def _of_series(kind: str, **settings: Any) -> Built:
    model = getattr(models, kind)(**_COMMON, n_series=_SERIES, **settings)
    return model, (_windows(_SERIES),)


def _windows(num_series: int) -> dict[str, Any]:
    shape = (4, _INPUT, num_series)
    return {
        "insample_y": torch.randn(*shape),
        "insample_mask": torch.ones(*shape),
        "outsample_mask": None,
        "hist_exog": None,
        "futr_exog": None,
        "stat_exog": None,
    }


MODELS = {
    "NHITS": partial(_of_windows, "NHITS", mlp_units=3 * [[64, 64]]),
    "TFT": partial(_of_windows, "TFT", hidden_size=32, n_head=4),
    "PatchTST": partial(
        _of_windows,
        "PatchTST",
        hidden_size=32,
        n_heads=4,
        linear_hidden_size=64,
        encoder_layers=2,
        patch_len=8,
    ),
    "iTransformer": partial(_of_series, "iTransformer", hidden_size=32, n_heads=4, d_ff=64),
    "TiDE": partial(_of_windows, "TiDE", hidden_size=64, temporal_decoder_dim=32),
}
