"""Nothing is written or removed through a link, and nothing is taken for ours that is not.

The folder that the user names may be a link.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.runs import make_data, make_net, make_settings, stop_run
from trainonce.cli import main
from trainonce.errors import LinkError, SettingError
from trainonce.runs.folder import Stage, append_record, clear, logged, stage_of, write_history
from trainonce.storage.atomic import draft_of, open_own, remove_drafts, remove_whole, write_file, write_whole
from trainonce.storage.checkpoint import find_newest, save_checkpoint
from trainonce.training import fit

HEX = "0123456789abcdef" * 2
FOREIGN = {
    "README.md": "mine",
    f".notes.{HEX}": "mine",
    f".trainonce-draft-{HEX}-a": "theirs",
    "step-000000001/state.json": "x",
}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Somebody's folder, with names in it that a run may use, too."""
    for name, content in FOREIGN.items():
        (tmp_path / "foreign" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "foreign" / name).write_text(content)
    return tmp_path / "foreign"


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def fill(draft: Path) -> None:
    (draft / "file").write_text("ours")


WRITERS: dict[str, Callable[[Path], object]] = {
    "write_file": lambda link: write_file(link, "ours"),
    "write_file below": lambda link: write_file(link / "README.md", "ours", within=link.parent),
    "write_whole": lambda link: write_whole(link, fill),
    "write_whole below": lambda link: write_whole(link / "step-000000001", fill, within=link.parent),
    "remove_whole": lambda link: remove_whole(link),
    "remove_whole below": lambda link: remove_whole(link / "step-000000001", within=link.parent),
    "remove_drafts": lambda link: remove_drafts(link, within=link.parent),
    "open_own": lambda link: open_own(link, "a"),
    "save_checkpoint": lambda link: save_checkpoint(link, 2, {"step": 2}, keep_last=1),
}


@pytest.mark.parametrize("name", list(WRITERS))
def test_no_writer_and_no_remover_follows_a_link(tmp_path: Path, foreign: Path, name: str):
    before = content_of(foreign)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(foreign)
    with pytest.raises(LinkError) as caught:
        WRITERS[name](tmp_path / "run" / "link")
    assert str(caught.value).isprintable()
    assert content_of(foreign) == before
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["link"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.csv"])
def test_records_are_not_appended_through_a_link(tmp_path: Path, foreign: Path, name: str):
    write_history(tmp_path, [])
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(foreign / "README.md")
    with pytest.raises(LinkError):
        append_record(tmp_path, [{"epoch": 1}])
    with pytest.raises(LinkError):
        write_history(tmp_path, [])
    assert (foreign / "README.md").read_text() == "mine"


def test_the_log_is_not_written_through_a_link_nor_into_a_pipe(tmp_path: Path, foreign: Path):
    (tmp_path / "log.txt").symlink_to(foreign / "README.md")
    with pytest.raises(LinkError), logged(tmp_path):
        pass
    (tmp_path / "log.txt").unlink()
    os.mkfifo(tmp_path / "log.txt")
    with pytest.raises((LinkError, OSError)), logged(tmp_path):
        pass
    assert (foreign / "README.md").read_text() == "mine"


def test_drafts_that_are_links_are_left_alone(tmp_path: Path, foreign: Path):
    before = content_of(foreign)
    (tmp_path / "run").mkdir()
    link = draft_of(tmp_path / "run" / "small")
    link.symlink_to(foreign)
    remove_drafts(tmp_path / "run")
    assert link.is_symlink()
    assert content_of(foreign) == before


def interrupted(out: Path) -> None:
    stop_run(out, at=9)


@pytest.mark.parametrize(
    "name", ["checkpoints", "small", "config.yaml", "env.json", "log.txt", "started.yaml", "report.html"]
)
def test_a_run_with_a_link_in_it_is_not_resumed(tmp_path: Path, foreign: Path, name: str):
    before = content_of(foreign)
    interrupted(tmp_path / "run")
    place = tmp_path / "run" / name
    if place.exists():
        place.rename(foreign / name)
        before = content_of(foreign)
        place.symlink_to(foreign / name)
    else:
        place.symlink_to(foreign)
    with pytest.raises(LinkError, match="is a symlink") as caught:
        fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", resume=True)
    assert "\n" not in str(caught.value)
    assert content_of(foreign) == before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["env.json", "small", "config.yaml", "data.json", ".lock", "metrics.jsonl"])
def test_a_pipe_in_a_run_is_replaced_or_told_and_never_waited_for(tmp_path: Path, name: str):
    out = tmp_path / "run"
    interrupted(out)
    (out / name).unlink(missing_ok=True)
    os.mkfifo(out / name)
    said = ""
    try:
        fit(make_net(), make_data(), settings=make_settings(), out=out, resume=True, quiet=True)
    except ValueError as error:
        said = str(error)
    assert said.isprintable()
    assert bool(said) == (out / name).is_fifo()
    assert not [path for path in out.iterdir() if path.name.startswith(".trainonce-draft")]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_what_is_no_folder_is_removed_and_replaced_all_the_same(tmp_path: Path, kind: str):
    for remover in (remove_whole, lambda place: write_whole(place, fill)):
        place = tmp_path / "small"
        os.mkfifo(place) if kind == "pipe" else place.write_text("x")
        remover(place)
        assert not place.is_file()
        assert not [path for path in tmp_path.iterdir() if path != place]


def test_scalars_are_not_written_through_a_link(tmp_path: Path, foreign: Path):
    pytest.importorskip("tensorboard")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").symlink_to(foreign)
    before = content_of(foreign)
    with pytest.raises((LinkError, SettingError)):
        fit(make_net(), make_data(), settings=make_settings(tensorboard=True), out=tmp_path / "run")
    assert content_of(foreign) == before


def test_report_writes_no_card_through_a_link(
    tmp_path: Path, foreign: Path, capsys: pytest.CaptureFixture[str]
):
    before = content_of(foreign)
    out = tmp_path / "run"
    fit(make_net(), make_data(), settings=make_settings(epochs=2, keep_flops=1.0), out=out, quiet=True)
    (out / "small").rename(tmp_path / "small")
    (out / "small").symlink_to(foreign)
    assert main(["report", str(out)]) == 2
    said = capsys.readouterr().err
    assert "is a symlink" in said
    assert said.count("\n") == 1
    assert content_of(foreign) == before


@pytest.mark.parametrize("name", [f".notes.{HEX}", f".{HEX}.notes", ".git", f".mine.{HEX}.old"])
def test_a_folder_of_hidden_files_is_not_empty(tmp_path: Path, name: str):
    (tmp_path / name).write_text("mine")
    with pytest.raises(SettingError, match="has no run in it"):
        stage_of(tmp_path)
    with pytest.raises(SettingError, match="has no run in it"):
        fit(make_net(), make_data(), settings=make_settings(), out=tmp_path)
    assert content_of(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize("name", [".lock", f".trainonce-draft-{HEX}-config.yaml"])
def test_a_link_with_a_name_of_ours_makes_a_folder_foreign(tmp_path: Path, foreign: Path, name: str):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(foreign / "README.md")
    with pytest.raises(SettingError, match="has no run in it"):
        stage_of(tmp_path / "run")


def test_what_a_kill_left_before_a_run_began_is_no_hindrance(tmp_path: Path):
    (tmp_path / ".lock").write_text("process 1")
    draft_of(tmp_path / "config.yaml").write_text("mod")
    draft_of(tmp_path / "small").mkdir()
    assert stage_of(tmp_path) is Stage.NEW
    clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_folder_itself_may_be_a_link(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    interrupted(tmp_path / "run")
    assert find_newest(tmp_path / "disk" / "checkpoints") is not None
    fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", resume=True)
    assert main(["report", str(tmp_path / "run")]) == 0
    assert yaml.safe_load((tmp_path / "disk" / "config.yaml").read_text())["seed"] == 0
