"""Plans are values: equal seeds give equal ones, and JSON gives them back."""

from __future__ import annotations

import pytest

import trainonce
from graphs import GRAPHS
from graphs.subjects import (
    inspected,
)
from support.chains import chain, example, half_plan, states_equal


def test_a_plan_survives_json():
    plan = half_plan(chain())
    again = trainonce.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert states_equal(trainonce.cut(chain(), again), trainonce.cut(chain(), plan))


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_every_plan_survives_json(name: str):
    plan = trainonce.Plan.random(inspected(name).partition, keep=0.5)
    assert trainonce.Plan.from_json(plan.to_json()) == plan


def test_equal_seeds_give_equal_plans():
    partition = trainonce.inspect(chain(), example())
    assert trainonce.Plan.random(partition, keep=0.5, seed=3) == trainonce.Plan.random(
        partition, keep=0.5, seed=3
    )
    assert trainonce.Plan.random(partition, keep=0.5, seed=3) != trainonce.Plan.random(
        partition, keep=0.5, seed=4
    )


def test_a_plan_that_keeps_all_changes_nothing():
    model = chain()
    trainonce.cut(model, trainonce.Plan.random(trainonce.inspect(model, example()), keep=1.0))
    assert states_equal(model, chain())
