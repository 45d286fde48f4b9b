"""The map between channels solves its own minimization; weights and biases through it compute the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from trainonce.pruning.regression import RIDGE, bias_through, channel_map, weight_through

KEPT = torch.tensor([0, 2, 3])


def samples() -> tuple[Tensor, Tensor]:
    """What a layer read, and what it reads now of the channels that stay."""
    generator = torch.Generator().manual_seed(0)
    before_NC = torch.randn(400, 5, generator=generator) @ torch.randn(5, 5, generator=generator) + 2
    return before_NC, before_NC[:, KEPT] + 0.1 * torch.randn(400, 3, generator=generator)


@pytest.mark.parametrize("has_bias", [True, False])
def test_the_map_solves_its_own_minimization(has_bias: bool):
    before_NC, now_NK = (part.double() for part in samples())
    map_CK, shift_C = channel_map(before_NC, now_NK, KEPT, has_bias=has_bias)
    start_CK = torch.zeros(5, 3, dtype=torch.double)
    start_CK[KEPT, torch.arange(3)] = 1
    centered_NK = now_NK - now_NK.mean(dim=0) if has_bias else now_NK
    strength = RIDGE * centered_NK.square().mean()

    def objective(map_CK: Tensor, shift_C: Tensor) -> Tensor:
        apart = (before_NC - now_NK @ map_CK.T - shift_C).square().sum() / len(before_NC)
        return apart + strength * (map_CK - start_CK).square().sum()

    best = objective(map_CK, shift_C)
    generator = torch.Generator().manual_seed(1)
    for step in 10.0 ** torch.arange(-3, 1):
        move_CK = torch.randn(5, 3, generator=generator, dtype=torch.double)
        move_C = has_bias * torch.randn(5, generator=generator, dtype=torch.double)
        for sign in (-1, 1):
            assert best < objective(map_CK + sign * step * move_CK, shift_C + sign * step * move_C)
    if not has_bias:
        assert not shift_C.any()


def test_channels_that_stay_as_they_are_read_as_before():
    before_NC, _ = samples()
    before_NC[:, [1, 4]] = 0
    map_CK, shift_C = channel_map(before_NC, before_NC[:, KEPT], KEPT, has_bias=True)
    wanted = torch.zeros(5, 3, dtype=torch.double)
    wanted[KEPT, torch.arange(3)] = 1
    assert torch.allclose(map_CK, wanted, atol=1e-6)
    assert shift_C.abs().max() < 1e-5


def test_a_weight_through_the_map_reads_what_the_map_gives():
    generator = torch.Generator().manual_seed(2)
    map_CK, shift_C = torch.randn(5, 3, generator=generator), torch.randn(5, generator=generator)
    images = torch.randn(2, 3, 6, 6, generator=generator)
    weight, bias = torch.randn(4, 5, 3, 3, generator=generator), torch.randn(4, generator=generator)
    mapped = torch.einsum("ck,bkhw->bchw", map_CK, images) + shift_C[:, None, None]
    found = F.conv2d(
        images, weight_through(weight, map_CK.double()), bias + bias_through(weight, shift_C.double())
    )
    assert torch.allclose(found, F.conv2d(mapped, weight, bias), atol=1e-4)
    rows = torch.randn(7, 3, generator=generator)
    matrix = torch.randn(4, 5, generator=generator)
    linear = F.linear(
        rows, weight_through(matrix, map_CK.double()), bias + bias_through(matrix, shift_C.double())
    )
    assert torch.allclose(linear, F.linear(rows @ map_CK.T + shift_C, matrix, bias), atol=1e-4)
