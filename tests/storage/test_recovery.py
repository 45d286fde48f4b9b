"""A kill at any moment of a save loses no complete state.

The newest one is found by the next start, which says what it did.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from support.runs import make_data, make_net, make_settings, same_weights, stop_run
from trainonce.storage import atomic
from trainonce.storage.atomic import draft_of, remove_drafts, write_whole
from trainonce.storage.checkpoint import Bounds, find_newest, recover, save_checkpoint
from trainonce.training import fit

KILL_EVERYWHERE = """
import os, sys
from pathlib import Path
from trainonce.storage.checkpoint import save_checkpoint

root, again = Path(sys.argv[1]), sys.argv[2] == "again"

def killing(name, at, is_after):
    whole, count = getattr(os, name), 0
    def call(*args, **kwargs):
        nonlocal count
        count += 1
        if count == at and not is_after:
            os._exit(7)
        result = whole(*args, **kwargs)
        if count == at:
            os._exit(7)
        return result
    setattr(os, name, call)

for name in ("mkdir", "fsync", "rename", "rmdir", "unlink"):
    for is_after in (False, True):
        for at in range(1, 20):
            place = root / f"{name}-{is_after}-{at}"
            child = os.fork()
            if child == 0:
                save_checkpoint(place, 10, {"step": "old"}, keep_last=1)
                killing(name, at, is_after)
                save_checkpoint(place, 10 if again else 20, {"step": "new"}, keep_last=1)
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code in (0, 7), code
            if code == 0:
                break
"""


@pytest.mark.parametrize("way", ["again", "further"])
def test_a_kill_at_any_point_of_a_save_loses_nothing(tmp_path: Path, way: str):
    subprocess.run([sys.executable, "-c", KILL_EVERYWHERE, str(tmp_path), way], check=True, timeout=250)
    found = {}
    for place in sorted(tmp_path.iterdir()):
        recover(place)
        remove_drafts(place)
        newest = find_newest(place)
        assert newest is not None, f"nothing is left of the kill {place.name}"
        assert newest.refused == ()
        found[place.name] = newest.state["step"]
        assert all(path.name.startswith("step-") for path in place.iterdir())
    renames = {name: state for name, state in found.items() if name.startswith("rename")}
    # When the first rename comes, the new state is complete; before it, the old one of the same step has its
    # name still.
    assert renames.pop("rename-False-1") == ("old" if way == "again" else "new")
    assert len(renames) >= 4
    assert set(renames.values()) == {"new"}
    assert {"old", "new"} <= set(found.values())


def test_a_rename_that_fails_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "target"
    write_whole(target, lambda draft: (draft / "file").write_text("old") and None)
    rename = Path.rename

    def fail_once(self: Path, other: Path) -> Path:
        if other == target and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(OSError, match="Input/output"):
        write_whole(target, lambda draft: (draft / "file").write_text("new") and None)
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_what_is_incomplete_or_has_a_name_already_is_not_recovered(tmp_path: Path):
    source = tmp_path / "source"
    save_checkpoint(source, 10, {"step": 10}, keep_last=1)
    root = tmp_path / "checkpoints"
    shutil.copytree(source, root)
    names = ("step-000000020", "step-000000021", "step-000000022", "step-000000010", "notes")
    drafts = [draft_of(root / name) for name in names]
    for draft in drafts:
        shutil.copytree(source / "step-000000010", draft)
    # The sums are written last: none, half of them, or a file that is gone means that the end did not come.
    sums = (drafts[0] / "SHA256SUMS").read_bytes()
    (drafts[0] / "SHA256SUMS").unlink()
    (drafts[1] / "SHA256SUMS").write_bytes(sums[:-9])
    (drafts[2] / "state.json").unlink()
    assert recover(root) == []
    assert find_newest(root).step == 10


def test_a_strangers_draft_is_not_read_before_its_size_is_known_to_be_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    save_checkpoint(tmp_path / "root", 10, {"step": 10}, keep_last=1)
    forged = draft_of(tmp_path / "root" / "step-000000020")
    shutil.copytree(tmp_path / "root" / "step-000000010", forged)
    os.truncate(forged / "state.safetensors", 2**40)
    monkeypatch.setattr(
        atomic, "digest", lambda file: pytest.fail("it was read") if file.stat().st_size > 2**30 else ""
    )
    assert [path.name for path in recover(tmp_path / "root")] == ["step-000000020"]
    monkeypatch.undo()
    found = find_newest(tmp_path / "root", bounds=Bounds(tensor_bytes=2**20))
    assert found.step == 10
    assert "a state of this run has at most" in found.refused[0]


def interrupted(out: Path, at: int = 9) -> None:
    stop_run(out, at=at, settings=make_settings(keep_checkpoints=1))


def test_a_run_whose_only_checkpoint_is_a_draft_goes_on_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    settings = make_settings(keep_checkpoints=1)
    whole = fit(make_net(), make_data(), settings=settings, loss=nn.functional.cross_entropy)
    interrupted(tmp_path / "run")
    newest = find_newest(tmp_path / "run" / "checkpoints")
    newest.path.rename(draft_of(newest.path))
    result = fit(
        make_net(),
        make_data(),
        settings=settings,
        loss=nn.functional.cross_entropy,
        out=tmp_path / "run",
        resume=True,
    )
    messages = [record.getMessage() for record in caplog.records]
    assert sum("was killed before it got its name" in message for message in messages) == 1
    assert sum(f"resuming at step {newest.step}" in message for message in messages) == 1
    assert same_weights(whole.model, result.model)


def test_a_start_at_step_0_in_a_folder_with_a_run_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    interrupted(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    caplog.clear()
    fit(
        make_net(), make_data(), settings=make_settings(keep_checkpoints=1), out=tmp_path / "run", resume=True
    )
    assert sum("starting again at step 0" in record.getMessage() for record in caplog.records) == 1


def test_a_first_start_says_nothing_of_that(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    fit(
        make_net(),
        make_data(),
        settings=make_settings(epochs=2, keep_flops=1.0),
        out=tmp_path / "run",
        resume=True,
    )
    assert not any("step 0" in record.getMessage() for record in caplog.records)
