"""Contenders in miniature: each meets its budget, notes survive a stop, variants are what they are called."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import trainonce
from benchmarks.harness.flops import count_image_macs, count_parameters
from benchmarks.harness.image_task import ImageTask
from benchmarks.harness.images import Images, load_images
from benchmarks.harness.resnet import build_resnet
from benchmarks.harness.statefile import read_state, write_state
from benchmarks.training.catalogue import CONTENDERS, EXPONENTS, SHAPES, TRUNKS, shape_name
from benchmarks.training.configuration import Configuration
from benchmarks.training.contender import Contender
from trainonce.pruning.policies import Capacity

EPOCHS, BATCH = 3, 64
EXAMPLE = torch.zeros(1, 3, 32, 32)


@pytest.fixture(scope="module")
def digits() -> Images:
    return load_images("digits").first(2 * BATCH)


@pytest.fixture(scope="module")
def more_digits() -> Images:
    """Enough steps for several updates of the controller."""
    return load_images("digits").first(20 * BATCH)


def contender_of(name: str, images: Images) -> Any:
    sizes = {"depth": 8, "epochs": EPOCHS, "batch_size": BATCH}
    configuration = Configuration(contender=name, keep_flops=0.5, seed=0, **sizes)
    return CONTENDERS[name].load()(configuration, ImageTask(images, configuration.depth))


def train(contender: Any, images: Images, epochs: range = range(EPOCHS)) -> Any:
    steps = images.steps_per_epoch(BATCH)
    for epoch in epochs:
        batches = images.batches(seed=0, epoch=epoch, batch_size=BATCH)
        for number, batch in enumerate(batches, start=epoch * steps):
            contender.step(
                number, batch, lambda number=number: images.held_batch(seed=0, step=number, batch_size=BATCH)
            )
    return contender


@pytest.mark.parametrize("name", ["lambda_10", "gamma_4", "half_space_10", "adamw_metric", "no_shrink"])
def test_a_variant_meets_the_budget_and_notes_every_epoch(name: str, digits: Images):
    contender = train(contender_of(name, digits), digits)
    contender.finish()
    facts = contender.facts()
    assert [epoch for epoch, _ in facts["penalties"] if epoch == int(epoch)] == [1, 2, 3]
    assert facts["penalties"][-1][1] == 0, "the decision keeps the budget, so nothing is left to penalize"
    assert len(facts["masked_accuracies"]) == EPOCHS
    assert 0 <= facts["num_came_back"] <= facts["num_dropped_once"]


def test_the_prior_decides_widths_or_channels_or_both(digits: Images):
    names = ("prior_alone", "prior_random", "even_random")
    masks = {name: train(contender_of(name, digits), digits).pruner.masks for name in names}
    widths = {name: [int(mask.sum()) for mask in found.values()] for name, found in masks.items()}
    assert widths["prior_alone"] == widths["prior_random"]
    alone, random = masks["prior_alone"], masks["prior_random"]
    assert not all(torch.equal(mask, random[name]) for name, mask in alone.items())
    assert int(random["stem"].sum()) > int(masks["even_random"]["stem"].sum())


def test_without_revival_a_dropped_unit_stays_only_to_fill_a_layer(digits: Images):
    contender = train(contender_of("never_back", digits), digits)
    contender.finish()
    assert contender.facts()["num_dropped_once"] > 0
    masks = contender.pruner.masks
    sizes = [len(mask) for mask in masks.values()]
    for mask, dropped in zip(masks.values(), contender._was_dropped.split(sizes), strict=True):
        # Widths are rounded to multiples; what fills them up was dropped once, but is kept only after all
        # that never was.
        assert not bool((mask * dropped).any()) or bool(mask[dropped == 0].all())


def test_asking_for_the_masks_does_not_change_what_is_gone(more_digits: Images):
    alone, asked = (contender_of("never_back", more_digits) for _ in range(2))
    unasked_step = asked.step

    def step_and_ask(*arguments):
        loss = unasked_step(*arguments)
        assert asked.pruner.masks
        return loss

    asked.step = step_and_ask
    for contender in (alone, asked):
        train(contender, more_digits).finish()
    assert asked.facts() == alone.facts()
    assert asked.facts()["num_dropped_once"] > 0


def test_what_only_the_decision_drops_was_not_dropped_by_an_update(more_digits: Images):
    contender = train(contender_of("no_shrink", more_digits), more_digits)
    assert contender.pruner.phase is trainonce.Phase.SETTLE
    assert bool(contender._was_dropped.any())
    only_by_decision = (contender._masks() == 0) & (contender._was_dropped == 0)
    assert bool(only_by_decision.any()), "rounded widths always drop some that updates kept"


def test_empty_layers_and_dead_filters_are_noted(digits: Images, monkeypatch: pytest.MonkeyPatch):
    contender = contender_of("defaults", digits)
    assert contender.facts()["num_dead"] == 0
    with torch.no_grad():
        contender.model.blocks[0].conv1.weight[:3] = 0
    assert contender.facts()["num_dead"] == 3
    masks = dict(contender.pruner.masks)
    emptied = next(name for name in masks if name.endswith("conv1"))
    masks[emptied] = torch.zeros_like(masks[emptied])
    monkeypatch.setattr(type(contender.pruner), "masks", property(lambda _: masks))
    assert 0 <= contender._masked_accuracy() <= 100


def test_notes_go_on_where_a_run_was_stopped(digits: Images, tmp_path: Path):
    whole = train(contender_of("defaults", digits), digits, range(1))
    write_state(tmp_path / "state", whole.state_dict())
    again = contender_of("defaults", digits)
    again.load_state_dict(read_state(tmp_path / "state"))
    for contender in (whole, again):
        train(contender, digits, range(1, EPOCHS))
    assert again.facts() == whole.facts()


def test_ours_hears_the_teacher_that_everybody_hears(
    digits: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A user's `teacher=` and the harness's own, which needs torch alone, are one function."""

    def built(self: Contender, epochs: int | None) -> torch.nn.Module:
        return self.task.build(seed=7 if epochs else 0).to(memory_format=self.memory_format)  # type: ignore

    monkeypatch.setattr(Contender, "_built", built)
    sizes = {"depth": 8, "epochs": EPOCHS, "batch_size": BATCH, "teacher_epochs": 1}
    ours = CONTENDERS["ours_taught"].load()(
        Configuration(contender="ours_taught", keep_flops=0.5, seed=0, **sizes), ImageTask(digits, 8)
    )
    batch = next(iter(digits.batches(seed=0, epoch=0, batch_size=BATCH)))
    ours.model.eval()
    assert torch.allclose(ours.loss(batch), Contender.loss(ours, batch), rtol=1e-6)
    assert abs(float(ours.loss(batch) - ours.task.loss(ours.model(batch[0]), batch[1]))) > 1e-3
    ours.model.train()
    train(ours, digits, range(1))
    write_state(tmp_path / "state", ours.state_dict())
    assert "sha256" in read_state(tmp_path / "state")["pruner"]["teacher"]


def test_the_child_of_a_peer_imports_nothing_of_trainonce():
    code = (
        "import sys; import benchmarks.training.child; from benchmarks.training.entry import entry_of; "
        "entry_of('hesso').load(); sys.exit('trainonce' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


def shaped(name: str) -> Any:
    configuration = Configuration(contender=name, keep_flops=0.5, seed=0, depth=8, batch_size=BATCH)
    colours = torch.zeros(BATCH, 3, 32, 32, dtype=torch.uint8), torch.zeros(BATCH, dtype=torch.long)
    return CONTENDERS[name].load()(configuration, ImageTask(Images("noise", *colours, *colours), 8))


def test_shapes_have_the_flops_that_were_asked_for_and_widths_as_they_say():
    dense = count_image_macs(build_resnet(8, seed=0), EXAMPLE)
    found = {name: shaped(name) for name in SHAPES}
    for name, contender in found.items():
        assert 0.49 <= count_image_macs(contender.model, EXAMPLE) / dense <= 0.5, name
    for trunk in TRUNKS:
        # A larger exponent leaves more weights for the same FLOPs.
        sizes = [count_parameters(found[shape_name(trunk, exponent)].model) for exponent in EXPONENTS]
        assert sizes == sorted(sizes)
        assert sizes[-1] > 1.5 * sizes[0]
    even, wide = (found[shape_name(trunk, 0.0)].facts()["widths"] for trunk in TRUNKS)
    streams = {"stem", "blocks.1.conv2"}  # only the classifier reads the last one
    assert streams < even.keys()
    assert all(wide[name] > even[name] if name in streams else wide[name] < even[name] for name in even)


def test_what_is_called_the_default_prior_is_that_of_the_library():
    given = {name: value.default for name, value in inspect.signature(Capacity).parameters.items()}
    default = f"Capacity(trunk={given['trunk']:g}, exponent={given['exponent']})"
    named = [entry for entry in SHAPES.values() if "default prior" in entry.words]
    assert [repr(entry.settings.policy) for entry in named] == [default] * 2


def test_a_shape_is_trained():
    contender = shaped("shape_any")
    before = contender.model.blocks[0].conv1.weight.detach().clone()
    batch = torch.randn(4, 3, 32, 32), torch.arange(4)
    contender.step(0, batch, lambda: batch)
    assert not torch.equal(contender.model.blocks[0].conv1.weight, before)
    assert contender.facts()["widths"]["blocks.0.conv1"] == len(before)
