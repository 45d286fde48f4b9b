"""A run's mark changes with what the code does, and with nothing else."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.sheets.sheet import ROOT
from benchmarks.training.carrying import carried, holds, marks_of, meaning_of
from benchmarks.training.catalogue import CONTENDERS, VARIANTS
from benchmarks.training.configuration import Configuration
from benchmarks.training.fingerprint import fingerprint, meanings
from benchmarks.training.records import PLACE, read_records, recorded

SOURCE = '''"""Words."""
import torch
from trainonce.surgery import proof
from trainonce.structure.plan import Plan

LIMIT = 3

def one(x):
    """Words."""
    return proof.modes_kept(x) + LIMIT
'''


def marks(*sources: str) -> list[str]:
    return sorted(meaning for source in sources for meaning in meanings(source))


def test_words_imports_and_places_do_not_count():
    head, constant, function = SOURCE.split("\n\n", 2)
    renamed = SOURCE.replace("import proof", "import proving").replace("proof.modes", "proving.modes")
    direct = SOURCE.replace("import proof", "import proof, modes_kept").replace("proof.modes", "modes")
    assert marks(SOURCE) == marks(SOURCE.replace("Words", "Other words"))
    assert marks(SOURCE) == marks(f"{head}\n{constant}", f"{head}\n{function}")
    assert marks(SOURCE) == marks(renamed) == marks(direct)


def test_what_is_computed_counts():
    for before, after in (
        ("LIMIT = 3", "LIMIT = 4"),
        ("+ LIMIT", "- LIMIT"),
        ("modes_kept", "modes_lost"),
        ("def one", "def two"),
    ):
        assert marks(SOURCE) != marks(SOURCE.replace(before, after))


def test_other_settings_are_other_runs():
    found = [fingerprint(name) for name in VARIANTS]
    assert len(set(found)) == len(found)


def test_a_run_that_needs_another_is_of_the_code_of_both(monkeypatch: pytest.MonkeyPatch):
    before = fingerprint("scratch"), fingerprint("dense")
    monkeypatch.setitem(CONTENDERS, "ours", replace(CONTENDERS["ours"], settings="other"))
    assert fingerprint("scratch") != before[0]
    assert fingerprint("dense") == before[1]


def test_the_names_of_recorded_runs_stay():
    sizes = {"epochs": 8, "num_images": 10000, "data": "/anywhere/cifar10-images.tar.gz"}
    one = Configuration(contender="adamw", keep_flops=0.3, seed=0, **sizes)
    assert one.name == "adamw-resnet20-keep0.3-epochs8-seed0-e8fb250d"


def test_a_record_is_carried_over_only_from_the_code_that_was_compared():
    record = {"configuration": {"contender": "ours"}, "of_code": "old", "accuracy": 71.0}
    moved = carried(record, {"ours": "old"}, {"ours"})
    assert moved == {**record, "of_code": fingerprint("ours"), "made_by_code": "old"}
    assert carried({**record, "made_by_code": "older"}, {"ours": "old"}, {"ours"})["made_by_code"] == "older"
    assert carried(record, {"ours": "another"}, {"ours"}) == record
    assert carried(record, {"ours": "old"}, set()) == record


def test_runs_are_equal_wherever_the_classes_of_their_models_live():
    run = {"accuracy": 71.0, "plan": '{"model": "benchmarks.resnet.Net", "kept": [1]}', "date": "today"}
    moved = {**run, "plan": run["plan"].replace("benchmarks.", "benchmarks.harness."), "date": "tomorrow"}
    other = {**run, "plan": run["plan"].replace("[1]", "[2]")}
    assert meaning_of(run) == meaning_of(moved) != meaning_of(other)


def test_marks_are_found_in_checkouts_of_either_layout(tmp_path: Path):
    assert marks_of(ROOT)["gamma_4"] == fingerprint("gamma_4")
    old = tmp_path / "benchmarks"
    for name, content in (
        ("__init__.py", ""),
        ("accuracy/__init__.py", ""),
        ("accuracy/contenders.py", "CONTENDERS = {'ours': 1}"),
        ("accuracy/fingerprint.py", "def fingerprint(name): return f'mark of {name}'"),
        ("studies/__init__.py", ""),
        (
            "studies/variants.py",
            "from benchmarks.accuracy.contenders import CONTENDERS\nCONTENDERS['new'] = 2",
        ),
    ):
        (old / name).parent.mkdir(exist_ok=True, parents=True)
        (old / name).write_text(content)
    assert marks_of(tmp_path) == {"ours": "mark of ours", "new": "mark of new"}
    shutil.rmtree(old / "accuracy")
    with pytest.raises(Exception, match="non-zero exit status"):
        marks_of(tmp_path)


def test_a_run_that_records_more_is_the_same_run_and_one_digit_makes_another():
    before = {"accuracy": 90.0, "log": [{"epoch": 1, "loss": 0.5}]}
    assert holds(before, {"accuracy": 90.0, "test_loss": 0.3, "log": [{"epoch": 1, "loss": 0.5, "more": 1}]})
    assert not holds(before, {"accuracy": 90.0})
    assert not holds(before, {"accuracy": 90.1, "log": [{"epoch": 1, "loss": 0.5}]})
    assert not holds(before, {"accuracy": 90.0, "log": []})
    assert not holds(before, {"accuracy": 90.0, "log": [{"epoch": 1, "loss": 0.50000001}]})


def test_every_committed_record_is_read_by_the_name_of_its_run():
    sheets = sorted(PLACE.glob("*.runs.jsonl"))
    assert sheets
    for sheet in sheets:
        for name, result in read_records(sheet).items():
            assert recorded(name) is not None
            assert result["configuration"]["contender"] in name
