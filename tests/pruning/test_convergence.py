"""Group-lasso least squares, where every constant is known.

The theorem's bound holds, and the limit is that of another solver.

    J(z) = 1/2 |X z - y|^2 + strength * sum_g |z_g|

The paper's theorem 1: with eta_t = c / (d + t)^(1/2), c / d^(1/2) <= min(1, epsilon / 4L), alpha_(t+1) = 4L /
epsilon * eta_t,

    1/T sum_t E|P_t| <= sqrt(G) d^(1/4) / T^(1/2) + sqrt(G) / T^(1/4)
    G = 4 (J(z_1) - J(z*)) / (epsilon c) + 2 sigma^2 / (b L epsilon c) + 2 d sigma^2 / (c epsilon L b) * ln(d
    + T)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import cvxpy
import pytest
import torch
from torch import Tensor, nn

from support.ragged import shrunk, shrunk_in_metric
from support.scattered import gathered, units_over
from trainonce.pruning.convergence import GradientMapping
from trainonce.pruning.pulling.projection import AdamMetric, Projection, Proximal, Pull
from trainonce.pruning.units import Rows, Units

STRENGTH = 9.0
NUM_GROUPS = 6
OFFSET = 500.0
"""The theorem's d: large, so that the step size falls slowly."""


@cache
def problem() -> tuple[Tensor, Tensor]:
    """40 equations for 18 unknowns, of which two groups of three matter."""
    generator = torch.Generator().manual_seed(0)
    matrix_ND = torch.randn(40, 3 * NUM_GROUPS, generator=generator, dtype=torch.double)
    truth_D = torch.zeros(3 * NUM_GROUPS, dtype=torch.double)
    truth_D[:6] = torch.randn(6, generator=generator, dtype=torch.double)
    return matrix_ND, matrix_ND @ truth_D + 0.5 * torch.randn(40, generator=generator, dtype=torch.double)


class Unknowns:
    """The vector z as rows of a matrix and entries of a vector.

    Group g is row g of the one and number g of the other.
    """

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.tensors = {
            "pairs": nn.Parameter(torch.randn(NUM_GROUPS, 2, generator=generator, dtype=torch.double)),
            "single": nn.Parameter(torch.randn(NUM_GROUPS, generator=generator, dtype=torch.double)),
        }
        order = torch.arange(NUM_GROUPS)
        self.units: Units = units_over(
            NUM_GROUPS, Rows("pairs", 0, order, order), Rows("single", 0, order, order)
        )

    def groups(self) -> Tensor:
        return torch.cat([self.tensors["pairs"], self.tensors["single"][:, None]], dim=1)

    def gathered(self, tensors: dict[str, Tensor]) -> Tensor:
        return torch.stack([gathered(self.units, tensors, unit) for unit in range(NUM_GROUPS)])


def smooth(groups_GD: Tensor) -> Tensor:
    matrix, right = problem()
    return 0.5 * (matrix @ groups_GD.flatten() - right).square().sum()


def objective(groups_GD: Tensor) -> float:
    return float((smooth(groups_GD) + STRENGTH * groups_GD.norm(dim=1).sum()).detach())


def slope(groups_GD: Tensor) -> Tensor:
    matrix, right = problem()
    return (matrix.T @ (matrix @ groups_GD.flatten() - right)).reshape(NUM_GROUPS, 3)


@cache
def lipschitz() -> float:
    return float(torch.linalg.matrix_norm(problem()[0], ord=2)) ** 2


@cache
def solution() -> Tensor:
    """By a cone solver."""
    matrix, right = problem()
    answer = cvxpy.Variable((NUM_GROUPS, 3))
    residual = matrix.numpy() @ cvxpy.reshape(answer, (3 * NUM_GROUPS,), order="C") - right.numpy()
    penalty = STRENGTH * cvxpy.sum(cvxpy.norm(answer, axis=1))
    cvxpy.Problem(cvxpy.Minimize(0.5 * cvxpy.sum_squares(residual) + penalty)).solve(
        solver=cvxpy.SCS, eps_abs=1e-11, eps_rel=1e-11, max_iters=100_000
    )
    found = torch.from_numpy(answer.value)
    assert 0 < int((found.norm(dim=1) > 1e-6).sum()) < NUM_GROUPS, "some groups live, some don't"
    return found


class FixedMetric(torch.optim.Optimizer):
    """Adam-type steps whose second moments stay what they are: z <- z - eta * A^-1 gradient."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, eps: float = 0.5) -> None:
        super().__init__(parameters, {"lr": lr, "eps": eps})
        generator = torch.Generator().manual_seed(2)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["exp_avg_sq"] = 4 * torch.rand(
                    parameter.shape, generator=generator, dtype=torch.double
                )

    def metric(self, parameter: Tensor) -> Tensor:
        return self.state[parameter]["exp_avg_sq"].sqrt() + 0.5

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * parameter.grad / self.metric(parameter))


def watched(unknowns: Unknowns, optimizer: torch.optim.Optimizer, pull: Pull) -> GradientMapping:
    """The optimizer with the projection behind it, and the watch behind both."""
    projection = Projection(unknowns.units, unknowns.tensors, optimizer)
    projection.select(torch.ones(NUM_GROUPS, dtype=torch.bool))
    optimizer.register_step_post_hook(lambda *_: projection.apply(pull, STRENGTH))
    return GradientMapping(optimizer)


def step_sizes(num_steps: int, epsilon: float) -> tuple[list[float], float]:
    """The theorem's step sizes, as large as it allows, and its constant c."""
    scale = min(1.0, epsilon / (4 * lipschitz())) * OFFSET**0.5
    return [scale / (OFFSET + step) ** 0.5 for step in range(1, num_steps + 1)], scale


def bound(num_steps: int, *, start: float, epsilon: float, scale: float, variance: float = 0.0) -> float:
    gap = start - objective(solution())
    total = 4 * gap / (epsilon * scale) + 2 * variance / (lipschitz() * epsilon * scale)
    total += 2 * OFFSET * variance / (scale * epsilon * lipschitz()) * math.log(OFFSET + num_steps)
    return total**0.5 * (OFFSET**0.25 / num_steps**0.5 + num_steps**-0.25)


def minimise(unknowns: Unknowns, optimizer: torch.optim.Optimizer, rates: list[float]) -> None:
    for rate in rates:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        smooth(unknowns.groups()).backward()
        optimizer.step()


@pytest.mark.parametrize("kind", ["sgd", "adam_type"])
def test_the_averaged_gradient_mapping_is_below_the_bound(kind: str):
    unknowns = Unknowns()
    if kind == "sgd":
        optimizer: Any = torch.optim.SGD(unknowns.tensors.values(), lr=1.0)
        pull, epsilon = Proximal(), 1.0
    else:
        optimizer = FixedMetric(unknowns.tensors.values(), lr=1.0)
        pull, epsilon = (
            AdamMetric(),
            min(float(optimizer.metric(parameter).min()) for parameter in unknowns.tensors.values()),
        )
    watch = watched(unknowns, optimizer, pull)
    start = objective(unknowns.groups())
    rates, scale = step_sizes(1000, epsilon)
    means = {}
    for first, last in ((0, 50), (50, 200), (200, 1000)):
        minimise(unknowns, optimizer, rates[first:last])
        means[last] = watch.mean
        assert watch.num_steps == last
        assert watch.mean <= bound(last, start=start, epsilon=epsilon, scale=scale)
    assert means[1000] <= means[200] * (200 / 1000) ** 0.25
    assert means[200] <= means[50] * (50 / 200) ** 0.25
    assert watch.norm is not None
    assert watch.norm < 1e-6
    assert torch.allclose(unknowns.groups(), solution(), rtol=0, atol=1e-6)
    dead = solution().norm(dim=1) < 1e-6
    assert not bool(unknowns.groups()[dead].any()), "what the solver calls zero is exactly zero"


@pytest.mark.parametrize("kind", ["sgd", "adam_type"])
def test_the_logged_norm_is_that_of_the_definition(kind: str):
    """P_t = (z_t - z*) / eta with z* from the pure operators, written down anew."""
    unknowns = Unknowns()
    optimizer: Any = (
        torch.optim.SGD(unknowns.tensors.values(), lr=1.0)
        if kind == "sgd"
        else FixedMetric(unknowns.tensors.values(), lr=1.0)
    )
    watch = watched(unknowns, optimizer, Proximal() if kind == "sgd" else AdamMetric())
    norms = []
    for rate in step_sizes(20, 0.5)[0]:
        before = unknowns.groups().detach()
        if kind == "sgd":
            after = shrunk(before - rate * slope(before), rate * STRENGTH)
        else:
            metric = unknowns.gathered(
                {name: optimizer.metric(parameter) for name, parameter in unknowns.tensors.items()}
            )
            after = shrunk_in_metric(before - rate * slope(before) / metric, metric, rate * STRENGTH)
        norms.append(float((before - after).norm()) / rate)
        minimise(unknowns, optimizer, [rate])
        assert watch.norm == pytest.approx(norms[-1], rel=1e-9)
    assert watch.mean == pytest.approx(sum(norms) / 20, rel=1e-9)


def test_noisy_gradients_with_the_papers_momentum_stay_below_the_bound():
    """The estimator m <- (1 - alpha) m + alpha * gradient, gradients with noise of known variance."""
    unknowns = Unknowns()
    rates, scale = step_sizes(1000, 1.0)
    optimizer = torch.optim.SGD(unknowns.tensors.values(), lr=1.0, momentum=0.5, dampening=0.5)
    watched(unknowns, optimizer, Proximal())
    start, spread = objective(unknowns.groups()), 3.0
    noise = torch.Generator().manual_seed(3)
    total, previous = 0.0, rates[0]
    for rate in rates:
        alpha = min(1.0, 4 * lipschitz() * previous)
        optimizer.param_groups[0].update(lr=rate, momentum=1 - alpha, dampening=1 - alpha)
        before = unknowns.groups().detach()
        total += float((before - shrunk(before - rate * slope(before), rate * STRENGTH)).norm()) / rate
        optimizer.zero_grad()
        direction = spread * torch.randn(before.shape, generator=noise, dtype=torch.double)
        (smooth(unknowns.groups()) + (direction * unknowns.groups()).sum()).backward()
        optimizer.step()
        previous = rate
    variance = spread**2 * 3 * NUM_GROUPS
    assert total / 1000 <= bound(1000, start=start, epsilon=1.0, scale=scale, variance=variance)
    assert objective(unknowns.groups()) - objective(solution()) < 0.01 * (start - objective(solution()))


def test_adam_itself_arrives_at_the_solution():
    """The minimiser does not depend on the metric.

    Adam with the pull in its own metric must find the same point.
    """
    unknowns = Unknowns()
    optimizer = torch.optim.Adam(unknowns.tensors.values(), lr=0.05)
    watch = watched(unknowns, optimizer, AdamMetric())
    minimise(unknowns, optimizer, [0.05 * 0.99**step for step in range(700)])
    assert torch.allclose(unknowns.groups(), solution(), rtol=0, atol=1e-4)
    assert not bool(unknowns.groups()[solution().norm(dim=1) < 1e-6].any())
    assert watch.norm is not None


def test_the_plain_pull_behind_adam_does_not_solve_the_problem():
    """What the metric is for: distance measured without it leads elsewhere."""
    unknowns = Unknowns()
    optimizer = torch.optim.Adam(unknowns.tensors.values(), lr=0.05)
    watched(unknowns, optimizer, Proximal())
    minimise(unknowns, optimizer, [0.05 * 0.99**step for step in range(700)])
    assert not torch.allclose(unknowns.groups(), solution(), rtol=0, atol=1e-2)


def test_a_watch_can_be_stopped_and_counts_only_its_own_steps():
    unknowns = Unknowns()
    optimizer = torch.optim.SGD(unknowns.tensors.values(), lr=1e-3)
    watch = GradientMapping(optimizer)
    assert watch.norm is None
    assert watch.mean == 0
    minimise(unknowns, optimizer, [1e-3])
    expected = float(slope(Unknowns().groups().detach()).norm())
    assert watch.norm == pytest.approx(expected, rel=1e-9)
    watch.stop()
    minimise(unknowns, optimizer, [1e-3])
    assert watch.num_steps == 1


def test_without_a_learning_rate_nothing_is_measured():
    unknowns = Unknowns()
    optimizer = torch.optim.SGD(unknowns.tensors.values(), lr=0.0)
    watch = GradientMapping(optimizer)
    minimise(unknowns, optimizer, [0.0])
    assert watch.num_steps == 0
