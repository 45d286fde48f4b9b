"""Laws of commands on a run that `fit` made.

They say what to pass, and build no model that nobody asked for.
"""

import sys
from pathlib import Path

import pytest
import torch

from support.finished import make_run
from support.runs import make_data, make_net, make_settings
from trainonce.cli import main
from trainonce.runs.config_file import to_yaml
from trainonce.training import fit
from trainonce.training.settings import Settings, as_plain
from trainonce.zoo.residual import thin_resnet

HELPER = """
from trainonce.zoo.residual import thin_resnet

def build():
    return thin_resnet(20, 10)

def deeper():
    return thin_resnet(32, 10)

def wider():
    return thin_resnet(20, 11)
"""
COMMANDS = {
    "evaluate": [],
    "export": ["--format", "safetensors", "--out", "exported"],
    "bench": ["--engine", "eager", "--batch-size", "2", "--seconds", "0.01"],
}


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `fit` writes, for a model that a function of the user's builds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "fit_helper", raising=False)
    (tmp_path / "fit_helper.py").write_text(HELPER)
    run = make_run(tmp_path / "fitted")
    (run / "config.yaml").write_text(to_yaml(as_plain(Settings(keep_flops=0.5)) | {"note": "of my own"}))
    return run


def test_fit_writes_no_model_and_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    fit(make_net(), make_data(), settings=make_settings(epochs=1, keep_flops=1.0), out=tmp_path / "run")
    capsys.readouterr()
    for command in COMMANDS:
        assert main([command, str(tmp_path / "run")]) == 2
        assert "was made by trainonce.fit" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_missing_is_asked_for(command: str, fitted: Path, capsys: pytest.CaptureFixture[str]):
    for words, wanted, known in (
        ([], "--model package.module:function and --data NAME", ""),
        (["--data", "digits"], "--model", "--data"),
    ):
        assert main([command, str(fitted), *words]) == 2
        err = capsys.readouterr().err
        assert f"Pass {wanted}" in err
        assert not known or known not in err.partition("Pass ")[2]
        assert err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_with_model_and_data_it_works(command: str, fitted: Path):
    assert (
        main([command, str(fitted), "--model", "fit_helper:build", "--data", "digits", *COMMANDS[command]])
        == 0
    )


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `fit` writes with tensors of the user's own, the record of its data included."""
    folder = tmp_path_factory.mktemp("real") / "run"
    images, labels = (
        torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(0)),
        torch.arange(32) % 10,
    )
    settings = make_settings(epochs=1, keep_flops=1.0, batch_size=16)
    fit(thin_resnet(20, 10), ((images, labels), (images, labels)), settings=settings, out=folder, quiet=True)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_real_run_takes_named_data_and_says_how_it_differs(
    command: str,
    real: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.chdir(tmp_path)
    assert (
        main([command, str(real), "--model", "cifar:resnet20", "--data", "digits", *COMMANDS[command]]) == 0
    )
    (line,) = [line for line in caplog.messages if "this is not the validation data of the run" in line]
    assert "float32 of shape (32, 3, 8, 8) before" in line
    assert "None" not in line


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("fit_helper:deeper", "stages"),
        ("fit_helper:wider", "fc"),
        ("torchvision:squeezenet1_1", "the folder contains a"),
        ("cifar:mobilenet_v2", "the folder contains a"),
    ],
)
def test_another_model_is_told_in_one_line(
    command: str, model: str, said: str, fitted: Path, capsys: pytest.CaptureFixture[str]
):
    assert (
        main(
            [
                command,
                str(fitted),
                "--model",
                model,
                "--data",
                "digits",
                "--device",
                "cpu",
                *COMMANDS[command],
            ]
        )
        == 2
    )
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    if not model.startswith("torchvision"):
        assert said in err


def test_such_a_run_goes_on_in_python(fitted: Path, capsys: pytest.CaptureFixture[str]):
    (fitted / "report.json").unlink()
    assert main(["train", "--resume", str(fitted)]) == 2
    err = capsys.readouterr().err
    assert "was made by trainonce.fit" in err
    assert f"trainonce.fit(..., out={str(fitted)!r}, resume=True)" in err
    assert err.count("\n") == 1
