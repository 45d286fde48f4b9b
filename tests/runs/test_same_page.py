"""One page for one run, whoever writes it: `fit(out=)`, `trainonce train` or `trainonce report`."""

import json
import shutil
from pathlib import Path

from support.runs import make_data, make_net, make_settings, stop_run
from trainonce.cli import main
from trainonce.recipes.run import Run, build_run_model, open_run_data
from trainonce.training import fit
from trainonce.training.settings import as_plain

TIMED = ("seconds", "latency_ms", "ms", "started")


def untimed(value: object) -> object:
    """Facts without what a clock has measured."""
    if isinstance(value, dict):
        return {name: untimed(item) for name, item in value.items() if name not in TIMED}
    return [untimed(item) for item in value] if isinstance(value, list) else value


def pages(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "report.html").read_bytes(), (folder / "small" / "README.md").read_bytes()


def test_fit_writes_the_page_that_the_command_writes(tmp_path: Path):
    folder = tmp_path / "run"
    fit(make_net(), make_data(), settings=make_settings(), out=folder, quiet=True)
    written = pages(folder)
    assert main(["report", str(folder)]) == 0
    assert pages(folder) == written


def test_the_command_and_fit_say_the_same_about_the_same_run(tmp_path: Path):
    words = [
        "--model",
        "cifar:resnet20",
        "--data",
        "digits",
        "--epochs",
        "1",
        "--batch-size",
        "512",
        "--keep-flops",
        "0.5",
    ]
    assert main(["train", *words, "--out", str(tmp_path / "command"), "--quiet"]) == 0
    run = Run(model="cifar:resnet20", data="digits", epochs=1, batch_size=512, keep_flops=0.5)
    data = open_run_data(run)
    fit(
        build_run_model(run, data),
        data,
        settings=run,
        config=as_plain(run),
        out=tmp_path / "fit",
        quiet=True,
    )
    command, fitted = (
        json.loads((tmp_path / name / "report.json").read_text()) for name in ("command", "fit")
    )
    assert untimed(command) == untimed(fitted)
    # From the same facts, down to the clock's, comes the same page.
    written = pages(tmp_path / "command")
    shutil.copy(tmp_path / "command" / "report.json", tmp_path / "fit")
    assert main(["report", str(tmp_path / "fit")]) == 0
    assert pages(tmp_path / "fit") == written


def test_both_cuts_of_an_interrupted_run_are_known(tmp_path: Path):
    """A stop between the two cuts, and one after both."""
    settings, whole = make_settings(epochs=12), tmp_path / "whole"
    fit(make_net(), make_data(), settings=settings, out=whole, quiet=True)
    cuts = json.loads((whole / "report.json").read_text())["schedule"]["cuts"]
    assert len(cuts) == 2
    for number, step in enumerate((cuts[0] + 1, cuts[1] + 1)):
        out = tmp_path / str(number)
        stop_run(out, at=step, settings=settings)
        fit(make_net(), make_data(), settings=settings, out=out, quiet=True, resume=True)
        assert json.loads((out / "report.json").read_text())["schedule"]["cuts"] == cuts
