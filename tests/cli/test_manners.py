"""Bad input: exit code 2, one line, no traceback, and the folder is left as it was."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import trainonce
from support.commands import refused
from support.finished import make_run
from trainonce.cli import main

ON_A_RUN = ["evaluate", "export", "bench"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "made")


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made, tmp_path / "a run [v2]"))


def listing(folder: Path) -> dict[str, float]:
    return {str(path.relative_to(folder)): os.lstat(path).st_mtime for path in [folder, *folder.rglob("*")]}


def turned_into(name: str, kind: str) -> Callable[[Path], None]:
    """A change to a run's folder: the file of that name is made something else."""

    def change(run: Path) -> None:
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "empty":
            path.touch()
        elif kind == "binary":
            path.write_bytes(bytes(range(256)) * 20)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "dangling":
            path.symlink_to("nowhere")
        elif kind == "loop":
            path.symlink_to(path.name)
        elif kind != "gone":
            path.write_text(kind)

    return change


CHANGES = {
    **{
        f"config.yaml {kind}": turned_into("config.yaml", kind)
        for kind in ("gone", "folder", "empty", "binary", "pipe", "dangling", "loop")
    },
    **{
        f"small {kind}": turned_into("small", kind)
        for kind in ("gone", "folder", "empty", "binary", "pipe", "dangling", "loop")
    },
    **{
        f"plan.json {kind}": turned_into("small/plan.json", kind)
        for kind in ("gone", "folder", "empty", "binary", "[]", "{}", "null")
    },
    **{
        f"weights {kind}": turned_into("small/model.safetensors", kind)
        for kind in ("gone", "folder", "empty", "binary")
    },
    **{
        f"sums {kind}": turned_into("small/SHA256SUMS", kind)
        for kind in ("gone", "folder", "empty", "binary")
    },
    **{
        f"config: {text[:40]}": turned_into("config.yaml", text)
        for text in (
            "[]",
            "3",
            "model: 3\ndata: digits",
            "model: null\ndata: null",
            "model: ''\ndata: ''",
            "model: 'cifar:'\ndata: digits",
            "model: ':'\ndata: digits",
            "model: cifar:resnet32\ndata: digits",
            "model: cifar:resnet56\ndata: digits",
            "model: timm:resnet18\ndata: digits\nimg_size: 4",
            "model: cifar:resnet20\ndata: digitz",
            "model: cifar:resnet20\ndata: 'folder:'",
            "model: cifar:resnet20\ndata: folder:/etc/passwd",
            "model: cifar:resnet20\ndata: 'digits:x'",
            "model: cifar:resnet20\ndata: imagenet",
            "model: cifar:resnet20\ndata: imagenet\ndata_dir: /nowhere",
            "model: cifar:resnet20\ndata: digits\nnum_classes: 7",
            "model: cifar:resnet20\ndata: digits\nnum_classes: 12",
            "model: cifar:resnet20\ndata: digits\npretrained: true",
            "model: cifar:resnet20\ndata: digits\nbatch_size: 0",
            "model: cifar:resnet20\ndata: digits\nseed: -1",
            "model: cifar:resnet20\ndata: digits\naugment: magic",
            "model: cifar:resnet20\ndata: digits\nunknown: 1",
            "model: [cifar:resnet20]\ndata: [digits]",
            "model: {a: b}\ndata: {c: d}",
        )
    },
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_with_something_wrong_in_it_is_told_in_one_line(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
):
    CHANGES[name](run)
    before = listing(run)
    for command in ON_A_RUN:
        refused([command, str(run), *(["--format", "pt2"] if command == "export" else [])], capsys)
    assert listing(run) == before


REPORTS = {
    **{
        f"report.json {kind}": turned_into("report.json", kind)
        for kind in ("empty", "binary", "[]", "{}", '"text"', "{")
    },
    "no config": lambda run: [(run / name).unlink() for name in ("report.json", "config.yaml")],
    "no records": lambda run: [(run / name).unlink() for name in ("report.json", "metrics.jsonl")],
    "records are a folder": lambda run: [
        (run / "report.json").unlink(),
        turned_into("metrics.jsonl", "folder")(run),
    ],
    "environment is text": lambda run: [(run / "report.json").unlink(), turned_into("env.json", "text")(run)],
    "configuration is binary": lambda run: [
        (run / "report.json").unlink(),
        turned_into("config.yaml", "binary")(run),
    ],
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_run_whose_report_is_damaged_is_told_in_one_line(
    name: str, run: Path, made: Path, capsys: pytest.CaptureFixture[str]
):
    REPORTS[name](run)
    before = listing(run)
    refused(["report", str(run)], capsys)
    refused(["report", str(run), "--json"], capsys)
    assert listing(run) == before
    refused(["report", str(made), "--baseline", str(run)], capsys)


WORDS = [
    ["RUN", "evaluate"],
    ["evaluate"],
    ["evaluate", "RUN", "RUN"],
    ["evaluate", "RUN/config.yaml"],
    ["evaluate", "RUN/small"],
    ["evaluate", ""],
    ["evaluate", "RUN\x00"],
    ["evaluate", "x" * 5000],
    ["evaluate", "RUN", "--device"],
    ["evaluate", "RUN", "--device", ""],
    ["evaluate", "RUN", "--device", "cuda:99"],
    ["evaluate", "RUN", "--device", "cuda:-1"],
    ["evaluate", "RUN", "--data", "cifar11"],
    ["evaluate", "RUN", "--data", "folder:nowhere"],
    ["evaluate", "RUN", "--model", "cifar:resnet32"],
    ["evaluate", "RUN", "--model", ""],
    ["evaluate", "RUN", "--model", "no_such_module:build"],
    ["evaluate", "RUN", "--model", "os:getcwd"],
    ["evaluate", "RUN", "--model", "sys:exit"],
    ["evaluate", "RUN", "--batch-size", "3"],
    ["export", "RUN", "--format", "tflite"],
    ["export", "RUN", "--out", "RUN"],
    ["export", "RUN", "--out", "RUN/config.yaml"],
    ["export", "RUN", "--out", "RUN/config.yaml/model.onnx", "--format", "pt2"],
    ["export", "RUN", "--out", "nowhere/model.pt2", "--format", "pt2"],
    ["export", "RUN", "--out", "x" * 300, "--format", "pt2"],
    ["export", "RUN", "--out", "/"],
    ["export", "RUN", "--out", ""],
    ["export", "RUN", "--out", "dangling"],
    ["bench", "RUN", "--engine", "tensorrt"],
    ["bench", "RUN", "--engine"],
    ["bench", "RUN", "--batch-size", "0"],
    ["bench", "RUN", "--batch-size", "many"],
    ["bench", "RUN", "--batch-size", "1.5"],
    ["bench", "RUN", "--batch-size", "1000000000"],
    ["bench", "RUN", "--seconds", "nan"],
    ["bench", "RUN", "--seconds", "-1"],
    ["bench", "RUN", "--seconds", "1e9"],
    ["report", "RUN", "--baseline"],
    ["report", "RUN", "--baseline", "nowhere"],
    ["report", "nowhere"],
    ["inspect", ""],
    ["inspect", ":"],
    ["inspect", "cifar:"],
    ["inspect", "::"],
    ["inspect", "cifar:resnet20", "--input", ""],
    ["inspect", "cifar:resnet20", "--input", "1x3x8x8", "--input", "1x3"],
    ["inspect", "cifar:resnet20", "--input", "99999999x3x9999x9999"],
    ["inspect", "cifar:resnet20", "--input", "1" * 5000],
    ["inspect", "cifar:resnet20", "--protect", "nothing"],
    ["inspect", "cifar:resnet20", "--protect", "[/x]"],
    ["inspect", "builtins:len"],
    ["inspect", "..:x"],
    ["inspect", ".:x"],
    ["inspect", ".relative:x"],
    ["inspect", "torch.nn:Linear", "--input", "1x4"],
    ["inspect", "torch.nn:__dict__", "--input", "1x4"],
    ["train", "--config", "RUN"],
    ["train", "--config", "RUN/small/model.safetensors"],
    ["train", "--config", ""],
    ["train", "--resume", "RUN/small"],
    ["train", "--resume", ""],
    ["train", "--resume", "RUN", "--model", "cifar:resnet32"],
    ["train", "digits.resnet20", "--out", "RUN"],
    ["train", "digits.resnet20", "--out", "RUN/config.yaml"],
    ["train", "digits.resnet20", "--out", "RUN/config.yaml/below"],
    ["train", "digits.resnet20", "--out", "RUN/small"],
    ["train", "digits.resnet20", "--out", "x" * 300],
    ["train", "digits.resnet20", "--out", "dangling"],
    ["train", "digits.resnet20", "--data-dir", "\x1b[2J"],
    ["train", "digits.resnet20", "--protect", "[/x]"],
    ["train", "digits.resnet20", "--seed", "9" * 500],
    ["train", "digits.resnet20", "--lr", "1e999"],
    ["--nothing"],
]


@pytest.mark.parametrize(
    "words", WORDS, ids=lambda words: " ".join(words)[:60].encode("unicode_escape").decode()
)
def test_wrong_words_are_told_in_one_line(words: list[str], run: Path, capsys: pytest.CaptureFixture[str]):
    Path("dangling").symlink_to("nowhere/at/all")
    before = listing(run)
    refused([word.replace("RUN", str(run)) for word in words], capsys)
    assert listing(run) == before


def test_a_folder_with_spaces_and_brackets_is_a_folder(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["evaluate", str(run)]) == 0
    assert main(["report", str(run)]) == 0
    assert f"report: {run}/report.html" in capsys.readouterr().out
    assert main(["export", str(run), "--format", "safetensors"]) == 0
    assert f"{run}/exported: same classes" in capsys.readouterr().out


WITHOUT_RIGHTS = [
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
]


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="no permission stops root")
def test_missing_permission_is_told_in_one_line_that_names_the_place(run: Path):
    source = """
import sys
from trainonce.cli import main
sys.exit(max(main(words.split("|")) for words in sys.argv[1:]) or 1)
"""
    (run / "closed").mkdir()
    (run / "closed" / "config.yaml").write_text("lr: 0.1")
    (run / "closed").chmod(0o600)
    calls = [f"{command}|closed" for command in (*ON_A_RUN, "report")]
    calls += [
        "train|--resume|closed",
        "train|digits.resnet20|--out|closed/x",
        "train|--config|closed/config.yaml",
    ]
    calls += ["export|.|--format|pt2|--out|closed/model.pt2"]
    start = WITHOUT_RIGHTS if os.geteuid() == 0 else []
    environment = {**os.environ, "PYTHONPATH": str(Path(trainonce.__file__).parents[1])}
    words = [*start, sys.executable, "-c", source, *calls]
    done = subprocess.run(words, cwd=run, env=environment, capture_output=True, text=True, check=False)
    (run / "closed").chmod(0o700)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == len(calls), done.stderr
    for line in lines:
        assert line.startswith("trainonce: can't ")
        assert "closed" in line
        assert "Permission denied" in line
        assert "Errno" not in line


def test_a_report_that_can_not_be_written_names_the_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(run / ".report.html.draft"))

    monkeypatch.setattr("trainonce.cli.reporting.write_report", refuse)
    assert f"can't write into {run}" in refused(["report", str(run)], capsys)
