"""Models of other packages: listed where none of them is installed, and what can't be built says so."""

import importlib
import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("timm", reason="pip install -e '.[zoo]'")

from benchmarks.__main__ import main
from benchmarks.coverage.calls import run_quietly
from benchmarks.coverage.children import Limits, measure_parts
from benchmarks.coverage.others.catalogue import NAMES, build_other
from benchmarks.coverage.others.page import LEAST_MODELS, LEAST_PACKAGES, list_bars, write_others
from benchmarks.coverage.others.versions import PACKAGES
from benchmarks.coverage.progress import Measured
from benchmarks.coverage.suites import OTHERS, Subject, list_models

GOOD = {"difference": 1e-15, "precision": "float64", "num_compared": 4, "removed_share": 0.5}
GOOD |= {"prunable_share": 0.97, "cost_of_full_exact": True, "cost_of_cut_exact": True, "train_problem": None}
GOOD |= {"state_survives": True, "difference_after_loading": 0.0, "inspect_seconds": 0.1, "costliest": []}
NOT_BUILT = {"failure": "after build: ModuleNotFoundError: No module named 'monai'"}


def found(facts: dict[str, Any], name: str = "monai/UNet") -> Measured:
    return Measured(Subject(OTHERS, f"{OTHERS}:{name}", name.partition("/")[0]), {"ours": facts})


def all_found() -> list[Measured]:
    return [Measured(subject, {"ours": dict(GOOD)}) for subject in list_models(OTHERS)]


def test_the_suite_is_listed_without_its_packages():
    subjects = list_models(OTHERS)
    assert len(subjects) >= LEAST_MODELS
    assert len({subject.kind for subject in subjects}) >= LEAST_PACKAGES
    assert len({subject.source for subject in subjects}) == len(subjects)
    assert len(PACKAGES) == len(NAMES) + 1


@pytest.mark.parametrize("package", NAMES)
def test_every_name_has_a_builder_and_every_builder_a_name(package: str):
    text = (Path(__file__).parents[1] / "coverage" / "others" / f"from_{package}.py").read_text()
    if importlib.util.find_spec(package) is None:
        assert "MODELS" in text
        return
    try:
        with warnings.catch_warnings():
            # What a package says about other packages when it is imported.
            warnings.simplefilter("ignore")
            module = importlib.import_module(f"benchmarks.coverage.others.from_{package}")
    except (ImportError, RuntimeError):
        pytest.skip(f"{package} can't be imported here")
    assert set(module.MODELS) == set(NAMES[package])


def test_models_are_built_the_same_twice():
    outputs = []
    for _ in range(2):
        torch.manual_seed(0)
        found = build_other("others:transformers/DetrForObjectDetection")
        outputs.append(run_quietly(found.model, found.example))
    assert all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))


def test_a_model_that_cannot_be_built_fails_alone():
    facts = measure_parts("others:monai/NoSuchNet", ["ours"], Limits(seconds=120))["ours"]
    assert facts["failure"].startswith("after build: ")


def test_the_sheet_says_what_was_not_built(tmp_path: Path):
    measured = [found(NOT_BUILT), *all_found()[1:]]
    assert write_others(tmp_path / "others.md", measured, {"torch": "0.0.1"}) == 1
    sheet = (tmp_path / "others.md").read_text()
    assert "not built: ModuleNotFoundError: No module named 'monai'" in sheet
    assert "torch 0.0.1" in sheet
    bars = {what: met for what, _, _, met in list_bars(measured)}
    assert not bars["models built"]
    assert bars["no exception, no wrong cut"]


def test_a_wrong_cut_or_a_crash_misses_its_bar():
    for facts in (GOOD | {"difference": 1e-3}, {"failure": "after load: ModelError: it fails"}):
        bars = {what: met for what, _, _, met in list_bars([*all_found(), found(facts)])}
        assert not bars["no exception, no wrong cut"]
        assert bars["models built"]
    assert all(met for *_, met in list_bars(all_found()))


def test_what_may_remain_is_a_bar():
    much = [found(GOOD | {"prunable_share": 0.5}, "torch_geometric/GCN")]
    bars = {what: (measured, met) for what, _, measured, met in list_bars(much)}
    assert bars["torch_geometric/GCN remains"] == ("0.500", False)


def test_without_its_environment_the_suite_says_how_to_get_it(tmp_path: Path, capsys: Any):
    arguments = ["coverage", "--suite", OTHERS, "--others-python", str(tmp_path / "python")]
    assert main([*arguments, "--out", str(tmp_path / "sheet.md")]) == 2
    assert "make others" in capsys.readouterr().err
    assert not (tmp_path / "sheet.md").exists()
