"""The table of accuracies compares like with like: the same seeds, the same code, the same FLOPs."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.accuracy import configuration as places
from benchmarks.accuracy import records
from benchmarks.accuracy.command import sheet_of
from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.accuracy.fingerprint import fingerprint
from benchmarks.accuracy.runs import run_and_record
from benchmarks.accuracy.summary import lead_of, ranked_accuracies, results_by_row, said, summarise
from benchmarks.figures import look_up, read_figures
from benchmarks.sheet import RESULTS

NAMED = {
    "dense",
    "ours",
    "scratch",
    "paper",
    "oto",
    "otov2",
    "filter_norm",
    "fpgm",
    "taylor",
    "random",
    "torch_pruning",
    "hesso",
}


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(records, "PLACE", tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def one(name: str, *, keep: float = 0.5, seed: int = 0) -> Configuration:
    return Configuration(
        contender=name, keep_flops=1.0 if name == "dense" else keep, seed=seed, depth=20, epochs=4, data=None
    )


def put(
    which: Configuration, accuracy: float, *, share: float | None = None, of_code: str | None = None
) -> None:
    which.result_file.write_text(json.dumps(result_of(which, accuracy, share=share, of_code=of_code)))


def result_of(
    which: Configuration, accuracy: float, *, share: float | None = None, of_code: str | None = None
) -> dict[str, Any]:
    return {
        "of_code": of_code or fingerprint(which.contender),
        "configuration": json.loads(which.to_json()),
        "accuracy": accuracy,
        "log": [{"loss": 9.0}, {"loss": 0.75}],
        "share_of_flops": which.keep_flops if share is None else share,
        "share_of_parameters": 0.4,
        "versions": {
            "torch": "2.4.1" if which.contender == "hesso" else "2.15.0",
            "only_train_once": "missing",
        },
        "threads": 1,
        "date": f"2026-01-0{1 + which.seed}",
    }


def written(tmp_path: Path, *words: str) -> str:
    sheet = tmp_path / "accuracy.md"
    sizes = ["--data", "digits", "--epochs", "4", "--keep", "0.5", "--table-only"]
    assert main(["accuracy", *sizes, *words, "--out", str(sheet)]) == 0
    return sheet.read_text()


def test_the_default_rows_are_the_named_ones():
    assert {name for name, entry in CONTENDERS.items() if not entry.is_extra} == NAMED


def test_leads_are_over_the_seeds_that_both_have():
    for seed, accuracy in enumerate((70.0, 80.0, 90.0)):
        put(one("ours", seed=seed), accuracy)
    put(one("hesso", seed=1), 79.0)
    put(one("oto", seed=0), 70.5)
    put(one("oto", seed=2), 89.0)
    rows = results_by_row(
        [one(name, seed=seed) for name in ("ours", "hesso", "oto", "random") for seed in range(3)],
        accept_old=False,
    )
    lead = lead_of(rows["ours", 0.5], rows["hesso", 0.5])
    assert said(lead) == "+1.00 (1 seed)"
    assert said(lead_of(rows["ours", 0.5], rows["oto", 0.5])) == "+0.25 (-0.50, +1.00)"
    assert lead_of(rows["ours", 0.5], rows["random", 0.5]) is None


def test_the_sheet_says_what_the_runs_say(tmp_path: Path):
    for seed in range(2):
        put(one("dense", seed=seed), 75.0 + seed)
        put(one("ours", seed=seed), 74.9 + seed, share=0.499)
        put(one("paper", seed=seed), 74.7 + seed, share=0.4951)
    put(one("hesso"), 74.0, share=0.4949)
    put(one("torch_pruning"), 70.0, of_code="of another time")
    text = written(tmp_path)
    assert "2026-01-01 to 2026-01-02; torch 2.15.0 and 2.4.1; " in text
    assert "--table-only" not in text
    words = {name: CONTENDERS[name].words for name in NAMED}
    assert (
        f"| {words['ours']} | 75.40 | 74.90 to 75.90, sd 0.71 | 2 of 3 | -0.10 (-0.10, -0.10) | - | 0.750 | "
        "0.499 | yes | 0.400 |  |" in text
    )
    assert (
        f"| {words['hesso']} | 74.00 | - | 1 of 3 | -1.00 (1 seed) | +0.90 (1 seed) | 0.750 | 0.495 | NO | "
        "0.400 |  |" in text
    )
    assert f"| {words['torch_pruning']} | - | - | 0 of 3 | - | - | - | - | - | - | not run yet |" in text
    assert f"| ahead of {words['hesso']} | >= 0.5 | it has fewer FLOPs, so this says nothing | - |" in text
    assert (
        f"| ahead of the best of the rest ({words['paper']}) | >= 0.5 | +0.20 (+0.20, +0.20) | NO |" in text
    )
    assert "| to dense | >= -0.3 | -0.10 (-0.10, -0.10) | yes |" in text


def test_the_sheet_shows_every_run_as_a_dot(tmp_path: Path):
    put(one("dense"), 75.0)
    assert ".png" not in written(tmp_path, "--contender", "dense")
    put(one("ours"), 74.0)
    assert "\n![accuracy of all contenders](accuracy/accuracy.png)\n" in written(tmp_path)
    picture = tmp_path / "accuracy" / "accuracy.png"
    before = picture.read_bytes()
    written(tmp_path)
    assert picture.read_bytes() == before
    put(one("ours", seed=1), 73.0)
    written(tmp_path)
    assert picture.read_bytes() != before


def test_the_rows_of_the_picture_are_ranked_as_the_table_is():
    put(one("dense"), 75.0)
    for seed, accuracy in enumerate((70.0, 74.0)):
        put(one("ours", seed=seed), accuracy)
    put(one("oto"), 73.0)
    wanted = [one(name, seed=seed) for name in ("ours", "hesso", "oto", "dense") for seed in range(3)]
    words = {name: CONTENDERS[name].words for name in NAMED}
    found = ranked_accuracies(results_by_row(wanted, accept_old=False))
    assert list(found) == [0.5]
    assert list(found[0.5].items()) == [
        (words["dense"], [75.0]),
        (words["oto"], [73.0]),
        (words["ours"], [70.0, 74.0]),
        (words["hesso"], []),
    ]


def test_a_peer_with_more_flops_than_asked_for_can_be_beaten(tmp_path: Path):
    put(one("ours"), 74.9)
    put(one("hesso"), 74.0, share=0.51)
    text = written(tmp_path)
    assert f"| ahead of {CONTENDERS['hesso'].words} | >= 0.5 | +0.90 (1 seed) | yes |" in text
    assert "| 74.00 | - | 1 of 3 | - | +0.90 (1 seed) | 0.750 | 0.510 | NO | 0.400 |" in text


def test_old_runs_are_shown_when_asked_for_and_marked(tmp_path: Path):
    put(one("torch_pruning"), 70.0, of_code="of another time")
    assert (
        f"| {CONTENDERS['torch_pruning'].words} | 70.00 | - | 1 of 3 | - | - | 0.750 | 0.500 | yes | 0.400 | "
        "1 of older code |" in written(tmp_path, "--keep-cache")
    )


def test_its_cells_can_be_figures(tmp_path: Path):
    put(one("ours"), 71.0)
    written(tmp_path)
    row = f"| ours | <!-- accuracy > {CONTENDERS['ours'].words} > accuracy, % -->71.00<!--/--> |"
    assert [look_up(figure, tmp_path) for figure in read_figures(row)] == ["71.00"]


def test_a_shape_of_older_code_is_not_trained_from_scratch():
    put(one("ours"), 71.0, of_code="of another time")
    with pytest.raises(RuntimeError, match="has to be run first, by this code"):
        CONTENDERS["scratch"].load()(one("scratch"), example=torch.zeros(1, 3, 32, 32), total_steps=4)


def test_a_run_that_needs_another_is_of_the_code_of_both(monkeypatch: pytest.MonkeyPatch):
    before = fingerprint("scratch"), fingerprint("dense")
    monkeypatch.setitem(CONTENDERS, "ours", replace(CONTENDERS["ours"], settings="other"))
    assert fingerprint("scratch") != before[0]
    assert fingerprint("dense") == before[1]


def test_a_clone_knows_the_runs_that_are_recorded_beside_the_sheet(tmp_path: Path, runs: Path):
    put(one("ours"), 71.0)
    before = written(tmp_path)
    one("ours").result_file.unlink()
    assert not list(runs.iterdir())
    assert written(tmp_path) == before
    assert one("ours").result(of_code=fingerprint("ours"))["accuracy"] == 71.0
    assert one("ours").result(of_code="of another time") is None
    assert one("ours").result(made_here=True) is None


def test_what_was_run_here_goes_before_what_is_recorded(tmp_path: Path):
    put(one("ours"), 71.0)
    put(one("ours", seed=1), 72.0)
    written(tmp_path)
    put(one("ours"), 73.0)
    assert f"| {CONTENDERS['ours'].words} | 72.50 | 72.00 to 73.00, sd 0.71 | 2 of 3 |" in written(tmp_path)
    assert [
        json.loads(line)["accuracy"] for line in (tmp_path / "accuracy.runs.jsonl").read_text().splitlines()
    ] == [73.0, 72.0]


def test_records_do_not_say_where_the_images_lay(tmp_path: Path):
    which = replace(one("ours"), data="/home/somebody/pictures.tar")
    path = records.write_records(tmp_path / "accuracy.md", {which.name: result_of(which, 71.0)})
    assert "somebody" not in path.read_text()
    assert replace(which, data="/elsewhere/pictures.tar").result() == result_of(
        replace(which, data="pictures.tar"), 71.0
    )


def test_only_plans_that_another_contender_needs_are_recorded(tmp_path: Path):
    for name in ("ours", "oto"):
        one(name).result_file.write_text(json.dumps({**result_of(one(name), 71.0), "plan": "of some length"}))
    written(tmp_path)
    lines = map(json.loads, (tmp_path / "accuracy.runs.jsonl").read_text().splitlines())
    assert {line["configuration"]["contender"]: line.get("plan") for line in lines} == {
        "ours": "of some length",
        "oto": None,
    }


@pytest.mark.parametrize(("afresh", "expected"), [(False, []), (True, ["dense"])])
def test_recorded_runs_are_made_again_only_if_asked_for(
    afresh: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    records.write_records(tmp_path / "accuracy.md", {one("dense").name: result_of(one("dense"), 75.0)})
    started: list[str] = []
    monkeypatch.setattr(
        "benchmarks.accuracy.runs._run", lambda configuration, *_: started.append(configuration.contender)
    )
    asked = argparse.Namespace(
        table_only=False, keep_cache=False, afresh=afresh, workers=1, threads=1, out=tmp_path / "accuracy.md"
    )
    run_and_record([one("dense")], asked)
    assert started == expected


MAIN_CONTENDERS = tuple(name for name, entry in CONTENDERS.items() if not entry.is_extra)


@pytest.mark.parametrize(
    ("depth", "names", "budgets", "num_seeds"),
    [(20, MAIN_CONTENDERS, (0.5, 0.3), 3), (56, ("dense", "ours", "torch_pruning"), (0.5,), 1)],
)
def test_the_committed_sheets_are_those_of_the_committed_runs(
    depth: int,
    names: tuple[str, ...],
    budgets: tuple[float, ...],
    num_seeds: int,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(records, "PLACE", RESULTS)
    cifar = Configuration(
        contender="", keep_flops=0, seed=0, depth=depth, epochs=4, data="cifar10-images.tar.gz"
    )
    wanted = [
        replace(cifar, contender=name, keep_flops=keep, seed=seed)
        for seed in range(num_seeds)
        for name in names
        for keep in (budgets if CONTENDERS[name].prunes else (1.0,))
    ]
    expected = summarise(results_by_row(wanted, accept_old=True), {}, num_seeds=num_seeds)
    text = sheet_of(depth).read_text()
    # Whether the code has changed since is said in the last column, and may change.
    found = text[text.index("\n## keep_flops") :].splitlines()
    assert [line.split(" | ")[:-1] for line in found] == [line.split(" | ")[:-1] for line in expected]
