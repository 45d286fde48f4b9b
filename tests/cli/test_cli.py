"""Laws of the command line.

Results on stdout, bad input in one line on stderr with exit code 2, never a traceback.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import trainonce
from trainonce.cli import main

OWN_MODULE = """
from torch import nn

def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

def empty():
    return nn.Identity()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cli_models.py").write_text(OWN_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "cli_models", raising=False)


def test_inspect_prints_groups_shares_and_reasons(capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", "cli_models:build", "--input", "1x4"]) == 0
    out, err = capsys.readouterr()
    assert "cli_models:build" in out
    assert "kept" in out
    assert "48 multiply-adds" in out
    assert err == ""


def test_inspect_json_is_the_partition(capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", "cli_models:build", "--input", "1x4", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["macs"] == 4 * 8 + 8 * 2
    assert [group["channels"] for group in data["groups"] if group["kept_because"] is None] == [8]


def test_keep_leaves_a_module_whole(capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", "cli_models:build", "--input", "1x4", "--protect", "0", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert all(group["kept_because"] for group in data["groups"])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["frobnicate"],
        ["train", "--config", "nowhere.yaml"],
        ["train", "digits.resnet20", "another"],
        ["inspect"],
        ["inspect", "resnet50"],
        ["inspect", "torchvision:resnt50"],
        ["inspect", "cli_models:build"],
        ["inspect", "cli_models:build", "--input", "1x5"],
        ["inspect", "cli_models:build", "--input", "4y4"],
        ["inspect", "cli_models:empty", "--input", "1x4"],
        ["inspect", "cli_models:nothing", "--input", "1x4"],
        ["inspect", "no_such_module:build", "--input", "1x4"],
    ],
)
def test_bad_input_is_told_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trainonce")
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["train", "digits.resnet20", "--keep-flop", "0.5"], "--keep-flops"),
        (["train", "digits.resnet20", "--keepflops=0.5"], "--keep-flops"),
        (["train", "digits.resnet20", "--epoch", "3"], "--epochs"),
        (["export", "runs/demo", "--fromat", "onnx"], "--format"),
    ],
)
def test_a_wrong_flag_is_refused_with_the_nearest_one(
    words: list[str], near: str, capsys: pytest.CaptureFixture[str]
):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert f"Did you mean {near}?" in err
    assert f"trainonce {words[0]}: unrecognized option --" in err
    assert err.count("\n") == 1


def test_a_library_that_is_misspelt_is_named(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "--model", "tim:convnext_atto", "--data", "digits", "--keep-flops", "0.5"]) == 2
    assert "Did you mean timm:convnext_atto?" in capsys.readouterr().err


def test_version_and_help_end_well(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert trainonce.__version__ in capsys.readouterr().out
    assert main(["inspect", "--help"]) == 0
    text = capsys.readouterr().out
    for word in ("torchvision:", "timm:", "transformers:", "--input", "--protect", "--json"):
        assert word in text


def test_python_dash_m_runs_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "trainonce", "--version"],
        capture_output=True,
        text=True,
        cwd=Path(trainonce.__file__).parents[1],
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"trainonce {trainonce.__version__}")
