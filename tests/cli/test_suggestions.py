"""Laws of suggestions: what was nearly right is answered with what was meant, and what was meant works."""

import sys
from pathlib import Path

import pytest

from trainonce.cli import main
from trainonce.errors import SettingError
from trainonce.recipes.run import Run, run_from

OWN_MODULE = """
from torch import nn

def MyNet():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "nets").mkdir(parents=True)
    for place in ("here/mynet.py", "here/nets/deep.py", "mynet.py"):
        (tmp_path / place).write_text(OWN_MODULE)
    monkeypatch.chdir(tmp_path / "here")
    for name in ("mynet", "nets", "nets.deep"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("mynet.py:MyNet", "mynet:MyNet"),
        ("./mynet.py:MyNet", "mynet:MyNet"),
        ("nets/deep.py:MyNet", "nets.deep:MyNet"),
        ("nets/deep:MyNet", "nets.deep:MyNet"),
    ],
)
def test_a_file_instead_of_a_module(written: str, meant: str, capsys: pytest.CaptureFixture[str]):
    for words in (["inspect", written, "--input", "1x4"], ["train", "--model", written, "--data", "digits"]):
        assert main(words) == 2
        err = capsys.readouterr().err
        assert f"Did you mean {meant}?" in err
        assert err.count("\n") == 1
    assert main(["inspect", meant, "--input", "1x4"]) == 0


def test_a_file_without_a_function_and_one_in_another_folder(capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", "mynet.py"]) == 2
    assert "Did you mean mynet:FUNCTION?" in capsys.readouterr().err
    assert main(["inspect", "../mynet.py:MyNet"]) == 2
    assert "Run from the folder that contains it, and pass mynet:MyNet." in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--keep-flops", "--keep-params"])
@pytest.mark.parametrize(
    ("written", "meant"),
    [("50%", "0.5"), ("50 %", "0.5"), ("45", "0.45"), ("100", "1"), ("0,5", "0.5"), ("7.5%", "0.075")],
)
def test_a_percentage_instead_of_a_share(
    flag: str, written: str, meant: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["train", "digits.resnet20", flag, written]) == 2
    err = capsys.readouterr().err
    assert f"Did you mean {meant}? See" in err
    assert err.count("\n") == 1
    assert main(["train", "digits.resnet20", flag, meant, "--print-config"]) == 0


@pytest.mark.parametrize("written", ["half", "1.5", "-0.5", "0", "nan", "1000", "%", "50%%x"])
def test_nothing_is_suggested_where_nothing_is_meant(written: str, capsys: pytest.CaptureFixture[str]):
    assert main(["train", "digits.resnet20", f"--keep-flops={written}"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(("value", "meant"), [("50%", "0.5"), (45, "0.45"), (30.0, "0.3")])
def test_files_and_programs_get_the_same_suggestion(value: object, meant: str):
    with pytest.raises(SettingError, match=f"Did you mean {meant}\\?"):
        run_from({"keep_flops": value}, Run())


def test_words_that_are_left_over(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "digits.resnet20", "--foo", "1"]) == 2
    assert "unrecognized option --foo." in capsys.readouterr().err
    assert main(["train", "digits.resnet20", "another"]) == 2
    assert "unrecognized argument another." in capsys.readouterr().err
    assert main(["train", "digits.resnet21"]) == 2
    assert "Did you mean digits.resnet20" in capsys.readouterr().err
