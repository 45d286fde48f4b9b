"""Laws of trust: a file never makes a command import code, unless the user says that they trust it."""

import sys
from pathlib import Path

import pytest

from support.finished import make_run
from support.runs import Counter, interrupt, make_data, make_net, make_settings
from trainonce.cli import main
from trainonce.errors import RunInterruptedError, SettingError, UnknownModelError
from trainonce.training import fit
from trainonce.training.settings import as_plain
from trainonce.zoo import sources
from trainonce.zoo.names import LIBRARIES, how_to_resume, names_code

HELPER = """
from pathlib import Path
Path("IMPORTED").touch()
from trainonce.zoo.residual import thin_resnet

def build():
    Path("CALLED").touch()
    return thin_resnet(20, 10)
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder that names a module in the current folder as its model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "trust_helper", raising=False)
    (tmp_path / "trust_helper.py").write_text(HELPER)
    return make_run(tmp_path / "a run", model="trust_helper:build")


def commands(folder: Path) -> dict[str, list[str]]:
    unfinished = folder.with_name("unfinished")
    if not unfinished.exists():
        unfinished.mkdir()
        (unfinished / "config.yaml").write_text((folder / "config.yaml").read_text())
    return {
        "evaluate": ["evaluate", str(folder)],
        "export": ["export", str(folder), "--format", "safetensors", "--out", "exported"],
        "bench": ["bench", str(folder), "--engine", "eager", "--batch-size", "2", "--seconds", "0.01"],
        "resume": ["train", "--resume", str(unfinished), "--quiet"],
        "config": [
            "train",
            "--config",
            str(folder / "config.yaml"),
            "--out",
            "again",
            "--epochs",
            "1",
            "--keep-flops",
            "1",
            "--quiet",
        ],
    }


NAMES = ["evaluate", "export", "bench", "resume", "config"]


@pytest.mark.parametrize("name", NAMES)
def test_code_that_a_file_names_is_not_imported(
    name: str, stranger: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(commands(stranger)[name]) == 2
    err = capsys.readouterr().err
    assert "--trust-code" in err
    assert "--model trust_helper:build" in err
    assert err.count("\n") == 1
    assert not Path("IMPORTED").exists()


@pytest.mark.parametrize("words", [["--trust-code"], ["--model", "trust_helper:build"]])
@pytest.mark.parametrize("name", NAMES)
def test_the_user_may_trust_it(
    name: str, words: list[str], stranger: Path, capsys: pytest.CaptureFixture[str]
):
    # A model whose module is given is built; the run itself need not come to an end here.
    extra = ["--device", "toaster"] if name in ("resume", "config") else []
    assert main([*commands(stranger)[name], *words, *extra]) == (2 if extra else 0)
    assert ("toaster" in capsys.readouterr().err) == bool(extra)
    assert Path("CALLED").exists() == (not extra)


def test_another_model_on_the_command_line_wins_over_the_files(stranger: Path):
    assert main(["evaluate", str(stranger), "--model", "cifar:resnet20"]) == 0
    assert not Path("IMPORTED").exists()


def test_settings_can_be_looked_at_without_trust(stranger: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", "--config", str(stranger / "config.yaml"), "--print-config"]) == 0
    assert "trust_helper:build" in capsys.readouterr().out
    assert not Path("IMPORTED").exists()


@pytest.mark.parametrize(
    "name",
    [
        "timm:hf-hub:somebody/model",
        "timm:hf_hub:somebody/model",
        "timm:local-dir:/tmp/model",
        "timm:resnet18@hf-hub:somebody/model",
        "timm:../model",
        "timm:resnet18/../../model",
        "torchvision:hf-hub:somebody/model",
        "torchvision:..models.resnet18",
        "torchvision:os.system",
        "transformers:os",
        "transformers:utils.import_utils",
        "transformers:AutoModel.from_pretrained",
        "transformers:__builtins__",
        "cifar:__class__",
    ],
)
def test_a_librarys_name_can_name_nothing_but_the_librarys_models(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(f"model: '{name}'\ndata: digits\n")
    for words in (
        ["evaluate", str(folder)],
        ["train", "--config", str(folder / "config.yaml"), "--out", str(tmp_path / "out")],
    ):
        assert main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(UnknownModelError):
        sources.build(name)
    with pytest.raises(UnknownModelError):
        sources.check_name(name)


def test_no_model_of_transformers_is_built_for_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "config.yaml").write_text("model: transformers:BertModel\ndata: digits\n")
    (tmp_path / "small").mkdir()
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "for trainonce inspect only" in capsys.readouterr().err


@pytest.mark.parametrize("library", LIBRARIES)
def test_only_names_of_libraries_are_no_code(library: str):
    assert not names_code(f"{library}:x")
    assert names_code(f"{library}.models:x")
    assert names_code(f" {library}:x")
    assert names_code(f"{library.upper()}:x")


def test_the_line_that_says_how_to_go_on_works(tmp_path: Path):
    folder = tmp_path / "a run"
    assert how_to_resume(folder, {"model": "timm:x"}) == f"trainonce train --resume '{folder}'"
    assert (
        how_to_resume(folder, {"model": "mine:build"}) == f"trainonce train --resume '{folder}' --trust-code"
    )
    assert how_to_resume(folder, {}) == f"trainonce.fit(..., out={str(folder)!r}, resume=True)"


def test_an_interrupted_run_of_own_code_says_that_it_must_be_trusted(tmp_path: Path):
    config = as_plain(make_settings()) | {"model": "mine:build", "data": "digits"}
    run = {"settings": make_settings(), "out": tmp_path / "run", "config": config}
    with pytest.raises(RunInterruptedError, match="--trust-code"):
        fit(make_net(), make_data(), loss=Counter({2}, interrupt), **run)
    with pytest.raises(SettingError, match="--trust-code"):
        fit(make_net(), make_data(), **run)


def test_help_says_what_trust_means(capsys: pytest.CaptureFixture[str]):
    for name in ("train", "evaluate", "export", "bench"):
        assert main([name, "--help"]) == 0
        assert "--trust-code" in capsys.readouterr().out
