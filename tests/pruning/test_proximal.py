"""The operators that pull groups to zero agree with their definitions and with an independent solver."""

from __future__ import annotations

import cvxpy
import pytest
import torch
from torch import Tensor

from support.ragged import half_spaced, shrunk, shrunk_in_metric
from trainonce.errors import SettingError
from trainonce.pruning.pulling.proximal import Ragged, shrink_groups, shrink_groups_in_metric

STRENGTHS = [0.0, 0.3, 1.5, 2.6, 40.0]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def metric(*shape: int, seed: int = 1) -> Tensor:
    """Positive numbers over four orders of magnitude, as Adam's second moments have them."""
    return 10 ** drawn(*shape, seed=seed)


def objective(groups_GD: Tensor, x_GD: Tensor, metric_GD: Tensor, strength: float) -> Tensor:
    return 0.5 * (metric_GD * (groups_GD - x_GD).square()).sum() + strength * groups_GD.norm(dim=1).sum()


def solved(x_GD: Tensor, metric_GD: Tensor, strength: float) -> Tensor:
    """The same minimization by a cone solver."""
    answer = cvxpy.Variable(tuple(x_GD.shape))
    distance = cvxpy.sum_squares(cvxpy.multiply(metric_GD.sqrt().numpy(), answer - x_GD.numpy()))
    problem = cvxpy.Problem(cvxpy.Minimize(0.5 * distance + strength * cvxpy.sum(cvxpy.norm(answer, axis=1))))
    problem.solve(solver=cvxpy.SCS, eps_abs=1e-10, eps_rel=1e-10)
    return torch.from_numpy(answer.value)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_shrink_solves_its_own_minimization(strength: float):
    x_GD = drawn(5, 7)
    best = shrunk(x_GD, strength)
    for seed, step in enumerate(10.0 ** torch.arange(-6, 1)):
        for direction in (drawn(5, 7, seed=seed), best, -best, x_GD, -x_GD):
            assert objective(best, x_GD, torch.ones_like(x_GD), strength) <= objective(
                best + step * direction, x_GD, torch.ones_like(x_GD), strength
            )


@pytest.mark.parametrize("strength", STRENGTHS)
def test_shrink_in_a_metric_solves_its_own_minimization(strength: float):
    x_GD, metric_GD = drawn(5, 7), metric(5, 7)
    best = shrunk_in_metric(x_GD, metric_GD, strength)
    for seed, step in enumerate(10.0 ** torch.arange(-6, 1)):
        for direction in (drawn(5, 7, seed=seed), best, -best, x_GD, -x_GD):
            assert objective(best, x_GD, metric_GD, strength) <= objective(
                best + step * direction, x_GD, metric_GD, strength
            )


@pytest.mark.parametrize("strength", STRENGTHS)
def test_shrink_equals_an_independent_solver(strength: float):
    x_GD = drawn(5, 7, seed=2)
    assert torch.allclose(
        shrunk(x_GD, strength), solved(x_GD, torch.ones_like(x_GD), strength), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("seed", [1, 2])
def test_shrink_in_a_metric_equals_an_independent_solver(strength: float, seed: int):
    x_GD, metric_GD = drawn(4, 6, seed=3), (0.5 * drawn(4, 6, seed=seed)).exp()
    assert torch.allclose(
        shrunk_in_metric(x_GD, metric_GD, strength),
        solved(x_GD, metric_GD, strength),
        rtol=0,
        atol=1e-6,
    )


def test_shrink_in_a_metric_meets_the_optimality_condition():
    """A (z - x) + strength * z / |z| = 0 where z is not zero, |A x| <= strength where it is.

    Over any range of metrics.
    """
    x_GD, metric_GD, strength = drawn(200, 6), metric(200, 6), 1.5
    z_GD = shrunk_in_metric(x_GD, metric_GD, strength)
    norm_G1 = z_GD.norm(dim=1, keepdim=True)
    lives_G = norm_G1[:, 0] > 0
    assert 0 < int(lives_G.sum()) < 200
    slope_GD = metric_GD * (z_GD - x_GD) + strength * z_GD / norm_G1
    assert (
        float((slope_GD[lives_G] / (metric_GD * x_GD)[lives_G].norm(dim=1, keepdim=True)).abs().max()) < 1e-9
    )
    assert float((metric_GD * x_GD)[~lives_G].norm(dim=1).max()) <= strength


def test_a_metric_of_ones_is_no_metric():
    x_GD = drawn(50, 7)
    assert torch.allclose(
        shrunk_in_metric(x_GD, torch.ones_like(x_GD), 2.6),
        shrunk(x_GD, 2.6),
        rtol=1e-12,
        atol=1e-12,
    )


@pytest.mark.parametrize("strength", STRENGTHS)
def test_shrink_does_not_expand(strength: float):
    """Two points come no further apart; in a metric, none further apart in that metric."""
    x_GD, y_GD, metric_GD = drawn(100, 3, seed=1), drawn(100, 3, seed=2), metric(100, 3)

    def distance(a_GD: Tensor, b_GD: Tensor, metric_GD: Tensor) -> Tensor:
        return (metric_GD * (a_GD - b_GD).square()).sum(dim=1)

    ones_GD = torch.ones_like(x_GD)
    assert bool(
        (
            distance(shrunk(x_GD, strength), shrunk(y_GD, strength), ones_GD)
            <= distance(x_GD, y_GD, ones_GD) + 1e-12
        ).all()
    )
    left, right = (shrunk_in_metric(point, metric_GD, strength) for point in (x_GD, y_GD))
    before = distance(x_GD, y_GD, metric_GD)
    assert bool((distance(left, right, metric_GD) <= before * (1 + 1e-9)).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("strength", STRENGTHS)
def test_zero_stays_zero_and_a_short_group_becomes_zero(strength: float, dtype: torch.dtype):
    x_GD = torch.zeros(2, 4, dtype=dtype)
    # Norms are taken in float32 or wider: a half that was rounded up would be longer than the strength.
    x_GD[1, 2] = 0.99 * strength
    assert not bool(shrunk(x_GD, strength).any())
    if dtype in (torch.float32, torch.float64):
        assert not bool(shrunk_in_metric(x_GD, torch.ones_like(x_GD), strength).any())
    assert not bool(half_spaced(torch.zeros(2, 4, dtype=dtype), x_GD, 0.5).any())


def test_no_strength_changes_nothing():
    x_GD = drawn(5, 7)
    assert torch.equal(shrunk(x_GD, 0), x_GD)
    assert torch.allclose(shrunk_in_metric(x_GD, metric(5, 7), 0), x_GD, rtol=1e-12, atol=0)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.95])
def test_half_space_obeys_its_definition(epsilon: float):
    trial_GD, before_GD = drawn(200, 4, seed=1), drawn(200, 4, seed=2)
    answer_GD = half_spaced(trial_GD, before_GD, epsilon)
    kept = 0
    for answer, trial, before in zip(answer_GD, trial_GD, before_GD, strict=True):
        stays = float(trial @ before) >= epsilon * float(before @ before)
        assert torch.equal(answer, trial if stays else torch.zeros(4, dtype=torch.double))
        kept += stays
    assert 0 < kept < 200


def test_half_space_on_its_border():
    before_GD = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    trial_GD = torch.tensor([[0.999, 5.0], [1.0, 5.0], [-1.0, 5.0]])
    assert half_spaced(trial_GD, before_GD, 0.5).any(dim=1).tolist() == [False, True, False]


@pytest.mark.parametrize("strength", [-1.0, -1e-9, float("nan")])
def test_a_negative_strength_is_refused(strength: float):
    for function in (shrunk, lambda x, s: shrunk_in_metric(x, torch.ones_like(x), s)):
        with pytest.raises(SettingError, match=r"^strength must be at least 0, got .*[^\n]$"):
            function(drawn(2, 3), strength)


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, 7.0, float("nan")])
def test_an_epsilon_outside_its_range_is_refused(epsilon: float):
    with pytest.raises(
        SettingError, match=r"^epsilon must be a number of at least 0 and below 1, got .*[^\n]$"
    ):
        half_spaced(drawn(2, 3), drawn(2, 3, seed=1), epsilon)


def test_numbers_without_a_metric_go_to_zero_and_move_no_others():
    """Where the metric is zero (Adam without epsilon, before a gradient), only the penalty counts."""
    x_GD, metric_GD = drawn(20, 6), metric(20, 6)
    metric_GD[:, 2] = 0
    answer_GD = shrunk_in_metric(x_GD, metric_GD, 0.7)
    assert not bool(answer_GD[:, 2].any())
    others = [0, 1, 3, 4, 5]
    assert bool(answer_GD[:, others].any())
    assert torch.allclose(
        answer_GD[:, others], shrunk_in_metric(x_GD[:, others], metric_GD[:, others], 0.7), rtol=1e-9, atol=0
    )


def test_what_was_zero_before_the_step_stays_zero_in_a_half_space():
    before_GD = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    assert half_spaced(torch.ones(2, 2), before_GD, 0.0).any(dim=1).tolist() == [False, True]


@pytest.mark.parametrize("strength", STRENGTHS)
def test_groups_in_pieces_are_pulled_as_whole_ones(strength: float):
    """Each group has its last columns in another tensor, where rows stand in another order."""
    x_GD, metric_GD = drawn(6, 7), metric(6, 7)
    order = torch.tensor([5, 3, 1, 0, 2, 4])

    def pieces(matrix_GD: Tensor) -> list[Tensor]:
        return [matrix_GD[:, :4].reshape(6, 2, 2), matrix_GD[order][:, 4:]]

    ragged = Ragged(pieces(x_GD), [torch.arange(6), order], 6)
    for pulled, whole_GD in (
        (shrink_groups(ragged, [strength] * 2), shrunk(x_GD, strength)),
        (
            shrink_groups_in_metric(ragged, pieces(metric_GD), [strength] * 2),
            shrunk_in_metric(x_GD, metric_GD, strength),
        ),
    ):
        for found, wanted in zip(pulled.rows, pieces(whole_GD), strict=True):
            assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-12)
