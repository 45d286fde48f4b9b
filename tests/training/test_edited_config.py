"""A run goes on with the settings that it was started with.

An edited config.yaml is refused in one line that names the key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.runs import make_data, make_net, make_settings, stop_run
from trainonce.cli import main
from trainonce.errors import SettingError
from trainonce.recipes.catalogue import find_recipe
from trainonce.runs.folder import occupied, read_unchanged_config, write_start
from trainonce.training import fit
from trainonce.training.resuming.continuity import check_config
from trainonce.training.session import MAY_DIFFER
from trainonce.training.settings import as_plain

EDITS: dict[str, Any] = {
    "lr": 0.01,
    "seed": 7,
    "epochs": 9,
    "batch_size": 64,
    "keep_flops": None,
    "opt": "adamw",
    "momentum": "fast",
    "weight_decay": [1, 2],
    "search_from": -1,
    "nesterov": {"a": 1},
    "unheard_of": 3,
    "sched": "x" * 10_000,
    "mixup": "\x1b[31m\n",
}


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """The folder of a run of the command that was killed right after its start."""
    with occupied(tmp_path / "run"):
        write_start(tmp_path / "run", as_plain(find_recipe("digits.resnet20")), {})
    return tmp_path / "run"


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changes))


@pytest.mark.parametrize("name", list(EDITS))
def test_the_command_refuses_an_edited_setting(started: Path, name: str, capsys: pytest.CaptureFixture[str]):
    edit(started, **{name: EDITS[name]})
    assert main(["train", "--resume", str(started), "--quiet"]) == 2
    said = capsys.readouterr().err.removesuffix("\n")
    assert said.isprintable()
    assert said.startswith(f"trainonce: {name} is ")
    assert "was started with" in said
    assert "Change it back" in said
    assert len(said) < 1000


def test_a_setting_that_was_taken_out_is_named(started: Path, capsys: pytest.CaptureFixture[str]):
    config = yaml.safe_load((started / "config.yaml").read_text())
    del config["lr"]
    (started / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["train", "--resume", str(started)]) == 2
    assert "lr is missing in" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "- 1", "lr: [", "\x00", "7", "lr: !!python/object/apply:os.system [x]"])
def test_what_is_no_configuration_is_refused(started: Path, text: str, capsys: pytest.CaptureFixture[str]):
    (started / "config.yaml").write_text(text)
    assert main(["train", "--resume", str(started)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "config.yaml" in said


@pytest.mark.parametrize("name", ["lr", "seed", "epochs", "batch_size", "unheard_of"])
def test_fit_refuses_an_edited_setting(tmp_path: Path, name: str):
    stop_run(tmp_path / "run", at=2)
    edit(tmp_path / "run", **{name: EDITS[name]})
    changes = {} if name == "unheard_of" else {name: EDITS[name]}
    for settings in (make_settings(), make_settings(**changes)):
        with pytest.raises(
            SettingError, match=f"^{name} is .*config.yaml, but the run was started with [^\n]*$"
        ):
            fit(make_net(), make_data(), settings=settings, out=tmp_path / "run", resume=True)


def test_an_untouched_run_goes_on_and_so_does_one_that_is_written_otherwise(tmp_path: Path):
    for number, rewrite in enumerate(
        (lambda file: None, lambda file: file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()))))
    ):
        out = tmp_path / str(number)
        stop_run(out, at=2)
        rewrite(out / "config.yaml")
        assert fit(make_net(), make_data(), settings=make_settings(), out=out, resume=True).report


def test_what_may_differ_may_be_edited(started: Path):
    edit(started, save_minutes=3.0, device="cpu")
    assert read_unchanged_config(started, may_differ=MAY_DIFFER)["save_minutes"] == 3.0


def test_an_edited_copy_is_noticed_too(started: Path, capsys: pytest.CaptureFixture[str]):
    copy = started / "started.yaml"
    copy.write_text(copy.read_text().replace("\nlr: ", "\nlr: 1"))
    edit(started, lr=yaml.safe_load(copy.read_text())["lr"])
    assert main(["train", "--resume", str(started)]) == 2
    assert "sha256 differs" in capsys.readouterr().err


def test_a_run_from_before_there_was_a_copy_goes_on(started: Path):
    (started / "started.yaml").unlink()
    assert read_unchanged_config(started, may_differ=MAY_DIFFER)["seed"] == 0


def test_a_run_of_an_earlier_version_with_an_unused_old_setting_can_be_resumed(tmp_path: Path):
    now = as_plain(make_settings())
    before = {name: value for name, value in now.items() if name != "protect"}
    for folder, kept in (("unused", []), ("used", ["head"])):
        with occupied(tmp_path / folder):
            write_start(tmp_path / folder, before | {"keep": kept}, {})
    check_config(tmp_path / "unused", now, may_differ=MAY_DIFFER)
    with pytest.raises(SettingError, match="keep is "):
        check_config(tmp_path / "used", now, may_differ=MAY_DIFFER)
