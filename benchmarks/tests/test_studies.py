"""The studies in miniature.

Every variant can be attached, notes survive a stop, tables and figures are written.
"""

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("matplotlib", reason="pip install -e '.[dev]'")

from benchmarks.accuracy import configuration as places
from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.contenders import CONTENDERS, Entry, add_contenders
from benchmarks.accuracy.fingerprint import fingerprint
from benchmarks.images import Images, load_images
from benchmarks.plots import Panel, write_png
from benchmarks.statefile import read_state, write_state
from benchmarks.studies.catalogue import STUDIES
from benchmarks.studies.curves import ACCURACY, REGULARISER, curves_of
from benchmarks.studies.variants import VARIANTS

import trainonce
from benchmarks.__main__ import main

EPOCHS, BATCH = 3, 64


@pytest.fixture(scope="module")
def digits() -> Images:
    return load_images("digits").first(2 * BATCH)


@pytest.fixture(scope="module")
def more_digits() -> Images:
    """Enough steps for several updates of the controller."""
    return load_images("digits").first(20 * BATCH)


def contender_of(name: str, images: Images):
    configuration = Configuration(
        contender=name, keep_flops=0.5, seed=0, depth=8, epochs=EPOCHS, batch_size=BATCH
    )
    steps = EPOCHS * images.steps_per_epoch(BATCH)
    return CONTENDERS[name].load()(configuration, example=images.example(), total_steps=steps)


def train(contender, images: Images, epochs: range) -> None:
    steps = images.steps_per_epoch(BATCH)
    for epoch in epochs:
        for number, batch in enumerate(
            images.batches(seed=0, epoch=epoch, batch_size=BATCH), start=epoch * steps
        ):
            contender.step(
                number, batch, lambda number=number: images.held_batch(seed=0, step=number, batch_size=BATCH)
            )


def test_every_study_compares_known_contenders_with_the_defaults():
    for study in STUDIES.values():
        assert study.contenders[0] == "defaults"
        assert set(study.contenders) <= CONTENDERS.keys()
    named = {name for study in STUDIES.values() for name in study.contenders}
    assert named >= VARIANTS.keys()


def test_other_settings_are_other_runs(monkeypatch: pytest.MonkeyPatch):
    marks = [fingerprint(name) for name in VARIANTS]
    assert len(set(marks)) == len(marks)
    before = fingerprint("gamma_4")
    monkeypatch.setitem(CONTENDERS, "gamma_4", replace(CONTENDERS["gamma_4"], settings="gamma is 5"))
    assert fingerprint("gamma_4") != before


def test_a_contender_is_not_replaced():
    with pytest.raises(ValueError, match="already: dense"):
        add_contenders({"dense": Entry("another", "ours", "Ours")})


@pytest.mark.parametrize("name", ["lambda_10", "gamma_4", "half_space_10", "adamw_metric", "no_shrink"])
def test_a_variant_meets_the_budget_and_notes_every_epoch(name: str, digits: Images):
    contender = contender_of(name, digits)
    train(contender, digits, range(EPOCHS))
    contender.finish()
    facts = contender.facts()
    assert [epoch for epoch, _ in facts["penalties"] if epoch == int(epoch)] == [1, 2, 3]
    assert facts["penalties"][-1][1] == 0, "the decision keeps the budget, so nothing is left to penalise"
    assert len(facts["masked_accuracies"]) == EPOCHS
    assert 0 <= facts["num_came_back"] <= facts["num_dropped_once"]


def test_the_defaults_are_those_of_attach(more_digits: Images):
    ours, studied = (contender_of(name, more_digits) for name in ("ours", "defaults"))
    for contender in (ours, studied):
        train(contender, more_digits, range(EPOCHS - 1))
    assert 0 < ours.pruner.keep_now < 1
    assert all(torch.equal(mask, studied.pruner.masks[name]) for name, mask in ours.pruner.masks.items())
    assert all(map(torch.equal, ours.model.parameters(), studied.model.parameters()))


def test_the_prior_decides_widths_or_channels_or_both(digits: Images):
    masks = {}
    for name in ("prior_alone", "prior_random", "even_random"):
        contender = contender_of(name, digits)
        train(contender, digits, range(EPOCHS))
        masks[name] = contender.pruner.masks
    widths = {name: [int(mask.sum()) for mask in found.values()] for name, found in masks.items()}
    assert widths["prior_alone"] == widths["prior_random"]
    assert not all(
        torch.equal(mask, masks["prior_random"][name]) for name, mask in masks["prior_alone"].items()
    )
    assert int(masks["prior_random"]["stem"].sum()) > int(masks["even_random"]["stem"].sum())


def test_without_revival_a_dropped_unit_stays_only_to_fill_a_layer(digits: Images):
    contender = contender_of("never_back", digits)
    train(contender, digits, range(EPOCHS))
    contender.finish()
    assert contender.facts()["num_dropped_once"] > 0
    masks = contender.pruner.masks
    dropped = dict(
        zip(masks, contender._was_dropped.split([len(mask) for mask in masks.values()]), strict=True)
    )
    for name, mask in masks.items():
        # Widths are rounded to multiples; what fills them up was dropped once, but is kept only after all
        # that never was.
        assert not bool((mask * dropped[name]).any()) or bool(mask[dropped[name] == 0].all())


def test_asking_for_the_masks_does_not_change_what_is_gone(more_digits: Images):
    alone, asked = contender_of("never_back", more_digits), contender_of("never_back", more_digits)
    unasked_step = asked.step

    def step_and_ask(*arguments):
        loss = unasked_step(*arguments)
        assert asked.pruner.masks
        return loss

    asked.step = step_and_ask
    for contender in (alone, asked):
        train(contender, more_digits, range(EPOCHS))
        contender.finish()
    assert asked.facts() == alone.facts()
    assert asked.facts()["num_dropped_once"] > 0


def test_what_only_the_decision_drops_was_not_dropped_by_an_update(more_digits: Images):
    contender = contender_of("no_shrink", more_digits)
    train(contender, more_digits, range(EPOCHS))
    assert contender.pruner.phase is trainonce.Phase.SETTLE
    assert bool(contender._was_dropped.any())
    assert bool(((contender._masks() == 0) & (contender._was_dropped == 0)).any()), (
        "rounded widths always drop some that updates kept"
    )


def test_a_layer_that_the_masks_empty_is_measured_all_the_same(
    digits: Images, monkeypatch: pytest.MonkeyPatch
):
    contender = contender_of("defaults", digits)
    masks = dict(contender.pruner.masks)
    emptied = next(name for name in masks if name.endswith("conv1"))
    masks[emptied] = torch.zeros_like(masks[emptied])
    monkeypatch.setattr(type(contender.pruner), "masks", property(lambda _: masks))
    assert 0 <= contender._masked_accuracy() <= 100


def test_dead_filters_are_counted(digits: Images):
    contender = contender_of("defaults", digits)
    assert contender.facts()["num_dead"] == 0
    with torch.no_grad():
        contender.model.blocks[0].conv1.weight[:3] = 0
    assert contender.facts()["num_dead"] == 3


def test_notes_go_on_where_a_run_was_stopped(digits: Images, tmp_path: Path):
    whole = contender_of("defaults", digits)
    train(whole, digits, range(1))
    write_state(tmp_path / "state", whole.state_dict())
    again = contender_of("defaults", digits)
    again.load_state_dict(read_state(tmp_path / "state"))
    train(whole, digits, range(1, EPOCHS))
    train(again, digits, range(1, EPOCHS))
    assert again.facts() == whole.facts()


def test_the_command_writes_tables_figures_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(places, "RUNS", tmp_path / "runs")
    for seed in range(2):
        for name in STUDIES["shrink"].contenders:
            one = Configuration(contender=name, keep_flops=0.5, seed=seed, depth=8, epochs=2, data=None)
            one.result_file.parent.mkdir(exist_ok=True)
            one.result_file.write_text(
                json.dumps(finished(one, accuracy=90.0 + seed, of_code=fingerprint(name)))
            )
    sheet = tmp_path / "studies.md"
    sizes = ["--depth", "8", "--epochs", "2", "--keep", "0.5", "--seeds", "3"]
    assert (
        main(
            ["studies", "--data", "digits", "--study", "shrink", "--table-only", *sizes, "--out", str(sheet)]
        )
        == 0
    )
    assert (
        "| our defaults | 90.50 | 90.00 to 91.00, sd 0.71 | 2 of 3 | - | 0.900 | 0.499 | 0.610 | 3 | 1 | 2 | "
        " |" in sheet.read_text()
    )
    assert (
        "| cut at the end only | 90.50 | 90.00 to 91.00, sd 0.71 | 2 of 3 | +0.00 (+0.00, +0.00) | 0.900 |"
        in sheet.read_text()
    )
    assert "\n2026-01-02; torch 2.0; " in sheet.read_text()
    assert "--table-only" not in sheet.read_text()
    assert (tmp_path / "studies" / "shrink-keep0.5.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "studies" / "shrink-keep0.5.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["quantity"] for row in rows} == {ACCURACY, REGULARISER}
    assert [row["value"] for row in rows if row["contender"] == "defaults" and row["quantity"] == ACCURACY][
        :2
    ] == ["50.0000", "90.0000"]


def finished(one: Configuration, *, accuracy: float, of_code: str) -> dict:
    log = [{"epoch": 1, "loss": 2.0, "accuracy": 80.0}, {"epoch": 2, "loss": 0.9, "accuracy": accuracy}]
    notes = {"penalties": [[1.0, 0.2], [2.0, 0.0]], "masked_accuracies": [50.0, None], "masks_keep": 0.61}
    sizes = {"share_of_flops": 0.499, "num_dropped_once": 3, "num_came_back": 1, "num_dead": 2}
    made = {"date": "2026-01-02", "threads": 1, "versions": {"torch": "2.0", "only_train_once": "missing"}}
    return {
        "of_code": of_code,
        "configuration": json.loads(one.to_json()),
        "accuracy": accuracy,
        "log": log,
        **notes,
        **sizes,
        **made,
    }


def test_the_regulariser_begins_at_one_for_every_budget():
    one = Configuration(contender="defaults", keep_flops=0.3, seed=0)
    curves = {
        curve.quantity: curve.points
        for curve in curves_of({"defaults": [finished(one, accuracy=90.0, of_code="")]})
    }
    assert curves[REGULARISER][0] == (0.0, 1.0)
    assert curves[ACCURACY] == ((1, 50.0), (2, 90.0))


def test_the_same_data_give_the_same_picture(tmp_path: Path):
    panel = Panel("epoch", "accuracy", {"a": [[(1, 2.0), (2, 3.0)], [(1, 4.0)]], "b": [[(1, 1.0)]]})
    for name in ("one.png", "two.png"):
        write_png(tmp_path / name, [panel, panel], title="twice")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_the_child_knows_the_variants(tmp_path: Path):
    command = [
        sys.executable,
        "-c",
        "import benchmarks.studies.child as child; print('gamma_4' in child.main.__globals__['CONTENDERS'])",
    ]
    assert (
        subprocess.run(
            command, cwd=Path(__file__).parents[2], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        == "True"
    )
