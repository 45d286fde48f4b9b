"""Whatever is passed to a public name by mistake is refused in one line, by an error of ours."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainonce

JUNK = {
    "none": None,
    "text": "x",
    "a number in quotes": "0.5",
    "zero": 0,
    "negative": -1,
    "fraction": 1.5,
    "flag": True,
    "nan": math.nan,
    "infinity": math.inf,
    "list": [],
    "dict": {},
    "object": object(),
    "class": nn.Module,
    "bytes": b"x",
    "tensor": torch.tensor(0.5),
    "complex": 1j,
    "huge": 10**400,
}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


EXAMPLE = torch.ones(2, 4)
PARTITION = trainonce.inspect(net(), EXAMPLE)
PLAN = trainonce.Plan.random(PARTITION, keep=0.5)
DATA = ((torch.ones(8, 4), torch.zeros(8, dtype=torch.long)),) * 2


def attach(**changes: Any) -> trainonce.Pruner:
    model = net()
    arguments: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "example": EXAMPLE,
        "total_steps": 2000,
        "keep_flops": 0.5,
    } | changes
    return trainonce.attach(arguments.pop("model"), arguments.pop("optimizer"), **arguments)


def fit(**changes: Any) -> trainonce.Result:
    arguments: dict[str, Any] = {"model": net(), "data": DATA, "keep_flops": 0.5, "quiet": True} | changes
    return trainonce.fit(arguments.pop("model"), arguments.pop("data"), **arguments)


def first_mask(mask: Any) -> trainonce.Plan:
    return trainonce.Plan.from_masks(PARTITION, {PARTITION.prunable_groups[0].name: mask})


WITH: dict[str, tuple[Callable[[Any], Any], str]] = {
    "inspect(model)": (lambda junk: trainonce.inspect(junk, EXAMPLE), ""),
    "inspect(example)": (lambda junk: trainonce.inspect(net(), junk), ""),
    "inspect(protect)": (lambda junk: trainonce.inspect(net(), EXAMPLE, protect=junk), "list"),
    "Plan.random(partition)": (lambda junk: trainonce.Plan.random(junk, keep=0.5), ""),
    "Plan.random(keep)": (lambda junk: trainonce.Plan.random(PARTITION, keep=junk), ""),
    "Plan.random(seed)": (
        lambda junk: trainonce.Plan.random(PARTITION, keep=0.5, seed=junk),
        "zero negative",
    ),
    "Plan.from_masks(partition)": (lambda junk: trainonce.Plan.from_masks(junk, {}), ""),
    "Plan.from_masks(masks)": (lambda junk: trainonce.Plan.from_masks(PARTITION, junk), "dict"),
    "Plan.from_masks(mask)": (first_mask, ""),
    "Plan.from_json": (trainonce.Plan.from_json, ""),
    "Plan.from_data": (trainonce.Plan.from_data, ""),
    "cut(model)": (lambda junk: trainonce.cut(junk, PLAN), ""),
    "cut(plan)": (lambda junk: trainonce.cut(net(), junk), ""),
    "cut(optimizer)": (lambda junk: trainonce.cut(net(), PLAN, optimizer=junk), "none"),
    "silence(model)": (lambda junk: trainonce.silence(junk, PLAN), ""),
    "silence(plan)": (lambda junk: trainonce.silence(net(), junk), ""),
    "save(model)": (lambda junk: trainonce.save(junk, "never written"), ""),
    "load(into)": (lambda junk: trainonce.load("never read", into=junk), ""),
    "load(path)": (lambda junk: trainonce.load(junk, into=net()), ""),
    "Schedule(search_from)": (lambda junk: trainonce.Schedule(search_from=junk), "zero"),
    "Schedule(shrink_from)": (lambda junk: trainonce.Schedule(shrink_from=junk), "zero"),
    "Schedule(first_cut_from)": (lambda junk: trainonce.Schedule(first_cut_from=junk), "zero none"),
    "Schedule(settle_from)": (lambda junk: trainonce.Schedule(settle_from=junk), "zero"),
    "Schedule(update_every)": (lambda junk: trainonce.Schedule(update_every=junk), "none"),
    "Strength(searching)": (lambda junk: trainonce.Strength(searching=junk), "zero fraction"),
    "Strength(settled)": (lambda junk: trainonce.Strength(settled=junk), "zero fraction"),
    "Strength(floor)": (lambda junk: trainonce.Strength(floor=junk), "zero"),
    "Strength(zero_within)": (lambda junk: trainonce.Strength(zero_within=junk), ""),
    "HalfSpace(epsilon)": (lambda junk: trainonce.HalfSpace(junk), "zero"),
    "FilterNorm(order)": (lambda junk: trainonce.policies.FilterNorm(junk), "flag"),
    "Gradual(num_periods)": (lambda junk: trainonce.policies.Gradual(num_periods=junk), ""),
    "attach(model)": (lambda junk: attach(model=junk), ""),
    "attach(optimizer)": (lambda junk: attach(optimizer=junk), ""),
    "attach(example)": (lambda junk: attach(example=junk), ""),
    "attach(total_steps)": (lambda junk: attach(total_steps=junk), ""),
    "attach(keep_flops)": (lambda junk: attach(keep_flops=junk), ""),
    "attach(keep_params)": (lambda junk: attach(keep_flops=None, keep_params=junk), ""),
    "attach(protect)": (lambda junk: attach(protect=junk), "list"),
    "attach(round_to)": (lambda junk: attach(round_to=junk), "none"),
    "attach(method)": (lambda junk: attach(method=junk), "none"),
    "attach(followers)": (lambda junk: attach(followers=junk), "none list"),
    "attach(policy)": (lambda junk: attach(policy=junk), "none"),
    "attach(schedule)": (lambda junk: attach(schedule=junk), "none"),
    "attach(strength)": (lambda junk: attach(strength=junk), "none"),
    "attach(pull)": (lambda junk: attach(pull=junk), "none"),
    "attach(shrink)": (lambda junk: attach(shrink=junk), "flag"),
    "attach(seed)": (lambda junk: attach(seed=junk), "zero negative"),
    "fit(model)": (lambda junk: fit(model=junk), ""),
    "fit(data)": (lambda junk: fit(data=junk), ""),
    "fit(keep_flops)": (lambda junk: fit(keep_flops=junk), ""),
    "fit(keep_params)": (lambda junk: fit(keep_flops=None, keep_params=junk), ""),
    "fit(epochs)": (lambda junk: fit(epochs=junk), "none"),
    "fit(pretrained)": (lambda junk: fit(pretrained=junk), "flag"),
    "fit(weights)": (lambda junk: fit(weights=junk), "none"),
    "fit(method)": (lambda junk: fit(method=junk), "none"),
    "fit(out)": (lambda junk: fit(out=junk), "none text a_number_in_quotes"),
    "fit(resume)": (lambda junk: fit(resume=junk), ""),
    "fit(settings)": (lambda junk: fit(settings=junk), "none"),
    "fit(loss)": (lambda junk: fit(loss=junk), "none"),
    # A class is called as a function that makes an optimizer: what it raises is the caller's own.
    "fit(optimizer)": (lambda junk: fit(optimizer=junk), "none class"),
    "fit(policy)": (lambda junk: fit(policy=junk), "none"),
    "fit(config)": (lambda junk: fit(config=junk), "none dict"),
    "fit(view)": (lambda junk: fit(view=junk, quiet=False), "none"),
    "fit(quiet)": (lambda junk: fit(quiet=junk), "flag"),
}
"""Each with the junk that is no mistake there."""


@pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning")
@pytest.mark.parametrize("name", WITH)
def test_a_mistake_is_refused_in_one_line(name: str):
    call, allowed = WITH[name]
    for kind, junk in JUNK.items():
        if kind.replace(" ", "_") not in allowed.split():
            with pytest.raises(trainonce.TrainonceError) as caught:
                call(junk)
            words = str(caught.value)
            assert words, (name, kind)
            assert "\n" not in words, (name, kind)
            assert len(words) < 400, (name, kind)


@pytest.mark.parametrize(
    "call",
    [
        lambda: trainonce.inspect(EXAMPLE, net()),  # type: ignore
        lambda: trainonce.cut(PLAN, net()),  # type: ignore
        lambda: trainonce.save("folder", net()),  # type: ignore
        lambda: trainonce.load(net(), into="folder"),  # type: ignore
        lambda: trainonce.fit(DATA, net(), keep_flops=0.5),  # type: ignore
        lambda: trainonce.attach(
            torch.optim.SGD(net().parameters()),  # type: ignore
            net(),  # type: ignore
            example=EXAMPLE,
            keep_flops=0.5,
            total_steps=9,
        ),
        lambda: attach(schedule=trainonce.Schedule(search_from=0.9, shrink_from=0.1)),
        lambda: attach(protect=["nothing.like.it"]),
        lambda: fit(resume=True),
        lambda: trainonce.cost.macs(PARTITION, {"nothing": torch.ones(1)}),
    ],
)
def test_arguments_in_the_wrong_order_are_refused(call: Callable[[], Any]):
    with pytest.raises(trainonce.TrainonceError, match=r"^[^\n]{20,400}$"):
        call()


@pytest.mark.parametrize("labels", [torch.full((8,), 99), torch.zeros(8), torch.zeros(8, 5)])
def test_labels_that_a_classifier_can_not_learn_are_refused(labels: torch.Tensor):
    with pytest.raises(trainonce.DataError, match=r"^cross-entropy can't compare .*loss= of your own\.$"):
        fit(
            data=((torch.ones(8, 4), labels),) * 2,
            epochs=50,
            settings=trainonce.Settings(batch_size=4),
        )


def test_a_path_that_is_no_path_is_refused(tmp_path: Path):
    for junk in (3, b"x", None, ["a"]):
        with pytest.raises(trainonce.ArtifactError, match=r"^path must be the path of a folder, got [^\n]*$"):
            trainonce.save(net(), junk)  # type: ignore
    trainonce.save(net(), tmp_path / "dense")
    assert (tmp_path / "dense").is_dir()
