"""Laws of files of settings.

Plain data only, bounded before they are read, whatever they hold is told in one line.
"""

import os
from pathlib import Path

import pytest

from trainonce.cli import main
from trainonce.errors import SettingError
from trainonce.recipes.run import Run, run_from
from trainonce.runs.config_file import read_yaml, to_yaml
from trainonce.runs.plain_files import LARGEST_YAML
from trainonce.training.settings import as_plain

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD = {
    "bomb": BOMB,
    "alias": "lr: &x 0.1\nmin_lr: *x\n",
    "anchor": "lr: &x 0.1\n",
    "own alias": "keep: &k [*k]\n",
    "deep": "keep: " + "[" * 5000,
    "deep blocks": "- " * 5000,
    "large": "# nothing\n" * LARGEST_YAML,
    "twice": "lr: 0.1\nlr: 0.2\n",
    "endless number": "seed: " + "1:" * 20_000 + "1\n",
    "many digits": "seed: " + "9" * 50_000,
    "date": "lr: 2001-99-99\n",
    "tag": "lr: !!python/object/apply:os.system [exit]\n",
    "set": "!!set {a, b}\n",
    "two": "lr: 0.1\n---\nlr: 0.2\n",
    "list as name": "? [a]\n: b\n",
    "escape": "data: \"\\x1b[31mdigits\"\n",
    "direction": "data: \"\\u202edigits\"\n",
    "long": f"data: {'x' * 5000}\n",
    "binary": "\x00\x01\x02",
    "empty": "",
    "text": "digits",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_told_in_one_short_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, out = tmp_path / "bad.yaml", tmp_path / "out"
    file.write_text(BAD[name], encoding="utf-8")
    assert main(["train", "digits.resnet20", "--config", str(file), "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert err[:-1].isprintable()
    assert len(err) < 1000
    assert not out.exists()


def test_a_bomb_is_refused_for_what_it_is(tmp_path: Path):
    (tmp_path / "bomb.yaml").write_text(BOMB)
    with pytest.raises(SettingError, match=r"line 1: anchors \(&\) and aliases \(\*\) are not allowed"):
        read_yaml(tmp_path / "bomb.yaml")


@pytest.mark.parametrize("kind", ["folder", "pipe", "nothing", "device", "loop"])
def test_what_is_no_file_is_not_waited_for(kind: str, tmp_path: Path):
    path = tmp_path / "config.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path = Path("/dev/zero")
    with pytest.raises(SettingError) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value)


def test_what_is_written_is_read_again():
    shared = ["stages.0.*"]
    assert "&" not in to_yaml({"keep": shared, "other": shared})


def test_every_setting_survives_the_file(tmp_path: Path):
    run = Run(
        keep_flops=0.3,
        decay_epochs=(3.0, 4.5),
        sched="step",
        protect=("a b", "[x]", "layer: 4"),
        data="folder:/a b/c",
        seed=2**63 - 1,
    )
    (tmp_path / "config.yaml").write_text(to_yaml(as_plain(run)))
    assert run_from(read_yaml(tmp_path / "config.yaml"), Run()) == run


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**65])
def test_numbers_without_end_are_refused_wherever_they_come_from(
    value: int, capsys: pytest.CaptureFixture[str]
):
    for name in ("lr", "epochs", "save_minutes", "seed"):
        with pytest.raises(SettingError, match=name):
            run_from({name: value}, Run())
    assert main(["train", "digits.resnet20", "--epochs", str(value)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
