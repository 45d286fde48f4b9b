"""HESSO of the package only_train_once, on the CPU.

Runs in the environment that `make hesso` builds (torch 2.4.1).

The published 3.0.1 moves its masks to a GPU without asking; here `Tensor.cuda` gives the tensor back, nothing
else is changed.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness.recipe import Recipe
from benchmarks.sheets.sheet import ROOT

PYTHON = ROOT / ".venv-oto" / "bin" / "python"
MISSING = "only_train_once is not installed here; `make hesso` builds an environment of its own for it"

START, END, PERIODS = 0.10, 0.25, 10
"""Of the run, as the tutorial of its authors advises: begin after a tenth, be over at a quarter.

In ten periods.
"""

LEAST_PERIOD = 10
"""Steps; groups fade to zero within a period: a single step would zero them at once."""


class Hesso:
    """A model with only_train_once's optimizer on it.

    `choose_num_kept` says of so many groups how many are to stay.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Tensor,
        recipe: Recipe,
        total_steps: int,
        *,
        choose_num_kept: Callable[[int], int],
        end: float = END,
    ) -> None:
        pruning_steps = max(LEAST_PERIOD, round((end - START) * total_steps))
        num_periods = max(1, min(PERIODS, pruning_steps // LEAST_PERIOD))
        with quiet():
            self._oto = _inspect(model, example)
            # Only its optimizer counts the groups, so one is made to ask.
            self.num_groups: int = self._oto.hesso(
                variant="sgd", lr=recipe.peak_learning_rate
            ).total_num_groups
            self.num_kept = choose_num_kept(self.num_groups)
            self.optimizer = self._oto.hesso(
                variant="sgd",
                lr=recipe.peak_learning_rate,
                first_momentum=recipe.momentum,
                weight_decay=recipe.weight_decay,
                # It rounds down to a number of groups; in the middle between two, no rounding error matters.
                target_group_sparsity=(self.num_groups - self.num_kept + 0.5) / self.num_groups,
                start_pruning_step=round(START * total_steps),
                pruning_periods=num_periods,
                # The package drops the remainder of this division: without it the pruning ends where it was
                # meant to.
                pruning_steps=pruning_steps // num_periods * num_periods,
            )
        model.train()
        self.model = model

    def finish(self) -> nn.Module:
        """Cut the model in place."""
        _cut(self._oto)
        return self.model


def cut_copy(model: nn.Module, example: Tensor) -> nn.Module:
    """What cutting the zero groups of `model` would leave; the model stays whole."""
    whole = copy.deepcopy(model)
    whole.zero_grad()
    with quiet():
        oto = _inspect(whole, example)
    _cut(oto)
    return whole


def _inspect(model: nn.Module, example: Tensor) -> Any:
    # Only in its own environment, so there is nothing here to import or to check it by.
    package = importlib.import_module("only_train_once")
    setattr(torch.Tensor, "cuda", lambda tensor, *_, **__: tensor)  # noqa: B010
    return package.OTO(model=model, dummy_input=example)


def _cut(oto: Any) -> None:
    """`construct_subnet` cuts the model in place and also saves it, which is not wanted here."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        oto.construct_subnet(out_dir=folder)


@contextlib.contextmanager
def quiet():
    """Without the package's prints."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def python_of_peer(given: Path | None) -> Path | None:
    """The interpreter to use; None, with a word on stderr, if it is not there."""
    path = given or PYTHON
    if path.exists():
        return path
    print(MISSING, file=sys.stderr)
    return None
