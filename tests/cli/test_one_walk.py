"""`trainonce train` builds, inspects and checks the model once; `fit` writes the same page."""

from collections import Counter
from pathlib import Path

import pytest

from trainonce.cli import main
from trainonce.pruning import attachment
from trainonce.recipes import run as runs
from trainonce.runs.report.writing import read_report, write_report
from trainonce.training import Settings, fit, preparation
from trainonce.training.results import closing

WORDS = ["digits.resnet20", "--epochs", "2", "--quiet", "--keep-flops", "0.6"]
SHORT = ["--search-from", "0.1", "--shrink-from", "0.2", "--settle-from", "0.5", "--warmup-epochs", "0"]


def test_the_command_builds_inspects_and_checks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls = Counter()

    def count(module: object, name: str) -> None:
        real = getattr(module, name)

        def counted(*words, **named):
            calls[name] += 1
            return real(*words, **named)

        monkeypatch.setattr(module, name, counted)

    for name in ("build", "inspect", "_check_output", "describe_data", "open_data"):
        count(runs, name)
    count(attachment, "inspect")
    for name in ("choose_device", "choose_precision", "method_of", "check_budget"):
        count(preparation, name)
    count(closing, "write_report")
    assert main(["train", *WORDS, *SHORT, "--out", str(tmp_path / "run")]) == 0
    assert calls == dict.fromkeys(calls, 1)
    assert len(calls) == 10


def test_a_run_that_is_dense_is_not_inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("inspected")

    monkeypatch.setattr(runs, "inspect", refuse)
    monkeypatch.setattr(attachment, "inspect", refuse)
    words = ["digits.resnet20", "--epochs", "2", "--keep-flops", "1", "--quiet", "--warmup-epochs", "0"]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0


def test_fit_and_the_command_write_the_page_of_the_report_command(tmp_path: Path):
    assert main(["train", *WORDS, *SHORT, "--out", str(tmp_path / "command")]) == 0
    run = runs.run_from({"epochs": 2}, runs.Run())
    data = runs.open_run_data(run)
    settings = Settings(keep_flops=0.6, epochs=2, search_from=0.1, shrink_from=0.2, settle_from=0.5)
    fit(runs.build_run_model(run, data), data, settings=settings, out=tmp_path / "fit", quiet=True)
    for folder in (tmp_path / "command", tmp_path / "fit"):
        written = {name: (folder / name).read_bytes() for name in ("report.html", "small/README.md")}
        for name in written:
            (folder / name).unlink()
        write_report(folder, read_report(folder))
        assert {name: (folder / name).read_bytes() for name in written} == written
