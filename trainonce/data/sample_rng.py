"""Random numbers per sample: hashes of (seed, sample, column).

Numbers of a generator depend on what was drawn before, so a resumed run, or one with more processes, would
augment differently.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """A hash from 0 to 2^63 - 1 of all the numbers in their order."""
    state = 0
    for number in numbers:
        state = _finalize((state * 0x9E3779B97F4A7C15 + number + 0x9E3779B97F4A7C15) & _MASK)
    return state >> 1


def uniform(samples_N: Tensor, seed: int, num_columns: int) -> Tensor:
    """Numbers in [0, 1), one row per sample; equal samples have equal rows in any batch.

    This is the finalizer of splitmix64 on sample * num_columns + column. Shapes: N samples, K columns.
    """
    columns_K = torch.arange(num_columns, dtype=torch.long)
    state_NK = samples_N.long().unsqueeze(1) * num_columns + columns_K
    state_NK = state_NK * _signed(0x9E3779B97F4A7C15) + _signed(mix(seed))
    state_NK = (state_NK ^ _shift(state_NK, 30)) * _signed(0xBF58476D1CE4E5B9)
    state_NK = (state_NK ^ _shift(state_NK, 27)) * _signed(0x94D049BB133111EB)
    state_NK = state_NK ^ _shift(state_NK, 31)
    # 53 bits are what a float64 holds.
    return _shift(state_NK, 11).double() * 2.0**-53


def seed_everything(seed: int) -> None:
    """Seed torch, Python and, if it is loaded, numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch, Python and numpy draw from this seed; afterwards they go on as if nothing was drawn."""
    python, numpy = random.getstate(), sys.modules.get("numpy")
    state = None if numpy is None else numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            seed_everything(seed)
            yield
        finally:
            random.setstate(python)
            if numpy is not None:
                numpy.random.set_state(state)


def _finalize(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def _shift(state: Tensor, bits: int) -> Tensor:
    """Logical right shift."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
