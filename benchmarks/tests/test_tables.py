"""Tables of many runs compare like with like: the same seeds, the same code, the same FLOPs."""

import argparse
import csv
import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="pip install -e '.[dev]'")

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.figures import look_up, read_figures
from benchmarks.sheets.plots import Panel, write_png
from benchmarks.sheets.sheet import RESULTS
from benchmarks.training import configuration as places
from benchmarks.training import records
from benchmarks.training.accuracy import sheet_of
from benchmarks.training.catalogue import CONTENDERS, VARIANTS
from benchmarks.training.configuration import Configuration
from benchmarks.training.fingerprint import fingerprint
from benchmarks.training.measures import lead_of, said
from benchmarks.training.questions import STUDIES
from benchmarks.training.regimes import REGIMES, introduction
from benchmarks.training.runs import run_missing
from benchmarks.training.studies import ACCURACY, REGULARISER
from benchmarks.training.summary import ranked_scores, results_by_row, summarise
from benchmarks.training.tasks import task_of

SHORT = REGIMES["short"]
MAIN = SHORT.names
WORDS = {name: entry.words for name, entry in CONTENDERS.items()}


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(records, "PLACE", tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def one(name: str, *, keep: float = 0.5, seed: int = 0) -> Configuration:
    keep = keep if CONTENDERS[name].prunes else 1.0
    return Configuration(contender=name, keep_flops=keep, seed=seed, epochs=4)


def result_of(which: Configuration, accuracy: float, **others: Any) -> dict[str, Any]:
    log = [{"epoch": 1, "loss": 9.0, "accuracy": 10.0}, {"epoch": 2, "loss": 0.75, "accuracy": accuracy}]
    torch_version = "2.4.1" if which.contender == "hesso" else "2.15.0"
    return {
        "of_code": fingerprint(which.contender),
        "configuration": json.loads(which.to_json()),
        "accuracy": accuracy,
        "log": log,
        "share_of_flops": which.keep_flops,
        "share_of_parameters": 0.4,
        "versions": {"torch": torch_version, "only_train_once": "missing"},
        "threads": 1,
        "date": f"2026-01-0{1 + which.seed}",
        **others,
    }


def put(which: Configuration, accuracy: float, **others: Any) -> None:
    which.result_file.write_text(json.dumps(result_of(which, accuracy, **others)))


def written(folder: Path, *words: str, command: str = "accuracy") -> str:
    sheet = folder / f"{command}.md"
    words = ("--regime", "short", *words) if command == "accuracy" else words
    sizes = ["--data", "digits", "--epochs", "4", "--keep", "0.5", "--table-only"]
    assert main([command, *sizes, *words, "--out", str(sheet)]) == 0
    return sheet.read_text()


def test_leads_are_over_the_seeds_that_both_have():
    for seed, accuracy in enumerate((70.0, 80.0, 90.0)):
        put(one("ours", seed=seed), accuracy)
    put(one("hesso", seed=1), 79.0)
    put(one("oto", seed=0), 70.5)
    put(one("oto", seed=2), 89.0)
    names = ("ours", "hesso", "oto", "random")
    wanted = [one(name, seed=seed) for name in names for seed in range(3)]
    rows = results_by_row(wanted, accept_old=False)
    ours, hesso, oto, random = (rows[name, 0.5] for name in names)
    assert said(lead_of(ours, hesso)) == "+1.00 (1 seed)"
    assert said(lead_of(ours, oto)) == "+0.25 (-0.50, +1.00)"
    assert lead_of(ours, random) is None
    ranked = {0.5: {WORDS["ours"]: [70, 80, 90], WORDS["oto"]: [70.5, 89]}}
    ranked[0.5] |= {WORDS["hesso"]: [79], WORDS["random"]: []}
    found = ranked_scores(rows)
    assert found == ranked
    assert list(found[0.5]) == [WORDS[name] for name in ("ours", "oto", "hesso", "random")]


def test_the_sheet_says_what_the_runs_say(tmp_path: Path):
    for seed in range(2):
        put(one("dense", seed=seed), 75.0 + seed)
        put(one("ours", seed=seed), 74.9 + seed, share_of_flops=0.499)
        put(one("paper", seed=seed), 74.7 + seed, share_of_flops=0.4951)
    put(one("hesso"), 74.0, share_of_flops=0.4949)
    put(one("torch_pruning"), 70.0, of_code="of another time")
    text = written(tmp_path)
    alone = "1 of 3 | -1.00 (1 seed) | +0.90 (1 seed)"
    spread, ahead = "74.90 to 75.90, sd 0.71 | 2 of 3 | -0.10 (-0.10, -0.10)", "+0.20 (+0.20, +0.20)"
    none = " | ".join("-" * 9)
    for line in (
        f"| {WORDS['ours']} | 75.40 | {spread} | - | - | 0.750 | - | 0.499 | yes | 0.400 | - |  |",
        f"| {WORDS['hesso']} | 74.00 | - | {alone} | - | 0.750 | - | 0.495 | ",
        f"| {WORDS['torch_pruning']} | - | - | 0 of 3 | {none} | not run yet |",
        f"| ahead of {WORDS['hesso']} | >= 0.5 | it has fewer FLOPs, so this says nothing | - |",
        f"| ahead of the best of the rest ({WORDS['paper']}) | >= 0.5 | {ahead} | NO |",
        "| to dense | >= -0.3 | -0.10 (-0.10, -0.10) | yes |",
        "2026-01-01 to 2026-01-02; torch 2.15.0 and 2.4.1; ",
    ):
        assert line in text
    assert "--table-only" not in text
    # Its cells can be figures.
    row = f"| ours | <!-- accuracy > {WORDS['ours']} > accuracy, % -->?<!--/--> |"
    assert [look_up(figure, tmp_path) for figure in read_figures(row)] == ["75.40"]
    # Old runs are shown when asked for, and marked; with more FLOPs than asked for one can be beaten.
    put(one("hesso"), 74.0, share_of_flops=0.51)
    text = written(tmp_path, "--keep-cache")
    assert f"| {WORDS['torch_pruning']} | 70.00 | - | 1 of 3 |" in text
    assert "| 0.400 | - | 1 of older code |" in text
    assert f"| ahead of {WORDS['hesso']} | >= 0.5 | +0.90 (1 seed) | yes |" in text


def test_the_sheet_shows_every_run_as_a_dot(tmp_path: Path):
    assert ".png" not in written(tmp_path, "--contender", "dense")
    put(one("ours"), 74.0)
    assert "\n![scores of all contenders](accuracy/accuracy.png)\n" in written(tmp_path)
    picture = tmp_path / "accuracy" / "accuracy.png"
    before = picture.read_bytes()
    put(one("ours", seed=1), 73.0)
    written(tmp_path)
    assert picture.read_bytes() != before


def test_a_clone_knows_the_runs_that_are_recorded_beside_the_sheet(tmp_path: Path, runs: Path):
    put(one("ours"), 71.0)
    before = written(tmp_path)
    one("ours").result_file.unlink()
    assert not list(runs.iterdir())
    assert written(tmp_path) == before
    found = one("ours").result(of_code=fingerprint("ours"))
    assert found is not None
    assert found["accuracy"] == 71.0
    assert one("ours").result(of_code="of another time") is None
    assert one("ours").result(made_here=True) is None
    # What was run here goes before what is recorded.
    put(one("ours"), 73.0)
    assert f"| {WORDS['ours']} | 73.00 |" in written(tmp_path)


def test_records_are_as_short_and_as_private_as_they_can_be(tmp_path: Path):
    which = replace(one("ours"), data="/home/somebody/pictures.tar")
    path = records.write_records(tmp_path / "accuracy.md", {which.name: result_of(which, 71.0)})
    assert "somebody" not in path.read_text()
    elsewhere = replace(which, data="/elsewhere/pictures.tar")
    assert elsewhere.result() == result_of(replace(which, data="pictures.tar"), 71.0)
    # Only plans that another contender needs are kept.
    for name in ("ours", "oto"):
        put(one(name), 71.0, plan="of some length")
    written(tmp_path)
    plans = {name: (records.recorded(one(name).name) or {}).get("plan") for name in ("ours", "oto")}
    assert plans == {"ours": "of some length", "oto": None}


@pytest.mark.parametrize(("afresh", "expected"), [(False, []), (True, ["dense"])])
def test_recorded_runs_are_made_again_only_if_asked_for(
    afresh: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    records.write_records(tmp_path / "accuracy.md", {one("dense").name: result_of(one("dense"), 75.0)})
    started: list[str] = []
    monkeypatch.setattr(
        "benchmarks.training.runs._run", lambda configuration, *_: started.append(configuration.contender)
    )
    asked = argparse.Namespace(keep_cache=False, afresh=afresh, workers=1, threads=1)
    assert run_missing([one("dense")], asked) == {}
    assert started == expected


def test_a_shape_of_older_code_is_not_trained_from_scratch():
    put(one("ours"), 71.0, of_code="of another time")
    with pytest.raises(RuntimeError, match="has to be run first, by this code"):
        CONTENDERS["scratch"].load()(one("scratch"), task_of(one("scratch")))


@pytest.mark.parametrize(
    ("depth", "names", "budgets", "num_seeds"),
    [(20, MAIN, (0.5, 0.3), 3), (56, ("dense", "ours", "torch_pruning"), (0.5,), 1)],
)
def test_the_committed_sheets_are_those_of_the_committed_runs(
    depth: int,
    names: tuple[str, ...],
    budgets: tuple[float, ...],
    num_seeds: int,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(records, "PLACE", RESULTS)
    cifar = replace(one("dense"), depth=depth, data="cifar10-images.tar.gz")
    wanted = [
        replace(cifar, contender=name, keep_flops=keep, seed=seed)
        for seed in range(num_seeds)
        for name in names
        for keep in (budgets if CONTENDERS[name].prunes else (1.0,))
    ]
    blocks = summarise(results_by_row(wanted, accept_old=True), {}, num_seeds, SHORT)
    text = sheet_of(argparse.Namespace(regime="short", depth=depth, for_validation=False)).read_text()
    found = [line for line in text[text.index("\n## keep_flops") :].splitlines() if line]
    # Whether the code has changed since is said in the last column, and may change.
    expected = [line.split(" | ")[:-1] for block in blocks for line in block]
    assert [line.split(" | ")[:-1] for line in found] == expected


OTHER_PAGES = {"coverage_others": "coverage.others.page"}
"""Sheets of a benchmark that has several."""


@pytest.mark.parametrize("sheet", sorted(RESULTS.glob("*.md")), ids=lambda sheet: sheet.stem)
def test_the_committed_introductions_are_those_of_the_code(sheet: Path):
    name, _, regime = (
        sheet.stem.rstrip("0123456789").partition("_")
        if sheet.stem.startswith("accuracy")
        else (sheet.stem, "", "")
    )
    place = OTHER_PAGES.get(name) or f"{BENCHMARKS[name][0]}.{name}"
    module = importlib.import_module(f"benchmarks.{place}")
    words = introduction(REGIMES[regime or "short"]) if name == "accuracy" else module.INTRODUCTION
    pattern = re.sub(r"\\\{\w+\\\}", ".*", re.escape(words.strip()))
    assert re.search(pattern, sheet.read_text())


def test_studies_write_tables_figures_and_data(tmp_path: Path):
    notes = {"penalties": [[1.0, 0.2], [2.0, 0.0]], "masked_accuracies": [50.0, None], "masks_keep": 0.61}
    notes |= {"num_dropped_once": 3, "num_came_back": 1, "num_dead": 2, "share_of_flops": 0.499}
    for seed in range(2):
        for name in STUDIES["shrink"].contenders:
            put(one(name, seed=seed), 90.0 + seed, **notes)
    text = written(tmp_path, "--study", "shrink", command="studies")
    row = "90.50 | 90.00 to 91.00, sd 0.71 | 2 of 3"
    assert f"| our defaults | {row} | - | 0.750 | 0.499 | 0.610 | 3 | 1 | 2 |  |" in text
    assert f"| cut at the end only | {row} | +0.00 (+0.00, +0.00) | 0.750 |" in text
    assert "![Cut while training, or at the end](studies/shrink-keep0.5.png) ([data](studies/" in text
    assert (tmp_path / "studies" / "shrink-keep0.5.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "studies" / "shrink-keep0.5.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["contender"] == "defaults" and row["seed"] == "0"]
    values = {
        name: [row["value"] for row in rows if row["quantity"] == name] for name in (ACCURACY, REGULARISER)
    }
    assert values[ACCURACY] == ["50.0000", "90.0000"]
    # The whole model's penalty is log(1 / p): scaled by it, every budget begins at 1.
    assert values[REGULARISER] == ["1.0000", "0.2885", "0.0000"]


def test_shapes_write_a_table_and_a_figure(tmp_path: Path):
    widths = {"stem": 8, "blocks.0.conv1": 12}
    for name in ("shape_1_0", "shape_3_0"):
        put(one(name), 60.0, widths=widths)
    text = written(tmp_path, command="shapes")
    row = "0.750 | - | 60.00 | 1 of 3 | 0.500 | 0.400 | 8 12 |  |"
    assert f"| trunk 1, exponent 0: the same share of every layer | {row}" in text
    assert "| trunk 3, exponent 0.5 | - | - | - | 0 of 3 | - | - | - | not run yet |" in text
    assert (tmp_path / "shapes" / "shapes.png").read_bytes().startswith(b"\x89PNG")


def test_every_study_compares_known_contenders_with_the_defaults():
    assert all(study.contenders[0] == "defaults" for study in STUDIES.values())
    named = {name for study in STUDIES.values() for name in study.contenders}
    assert VARIANTS.keys() <= named <= CONTENDERS.keys()


def test_the_same_data_give_the_same_picture(tmp_path: Path):
    panel = Panel("epoch", "accuracy", {"a": [[(1, 2.0), (2, 3.0)], [(1, 4.0)]], "b": [[(1, 1.0)]]})
    for name in ("one.png", "two.png"):
        write_png(tmp_path / name, [panel, panel], title="twice")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
