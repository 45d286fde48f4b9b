"""Scalars for TensorBoard.

Every epoch is shown once, whatever was killed or full on the way, and no run depends on them.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.disks import fill, mounted
from support.runs import Counter, Listener, make_data, make_net, make_settings, same_weights
from trainonce.errors import SettingError
from trainonce.recipes.run import Run
from trainonce.runs.scalars import Scalars
from trainonce.training import fit
from trainonce.training.preparation import prepare

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def make_history(num_epochs: int) -> list[dict[str, Any]]:
    return [
        {"step": step, "loss": 1 / step, "top1": 50.0 + step, "keep_flops": 0.5}
        for step in range(1, num_epochs + 1)
    ]


def check_scalars(out: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """TensorBoard shows every epoch once, at its step."""
    events = accumulator.EventAccumulator(str(out / "tensorboard")).Reload()
    for name in ("loss", "top1", "keep_flops"):
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(record["step"], pytest.approx(record[name])) for record in history]


def test_every_epoch_is_shown(tmp_path: Path):
    result = fit(make_net(), make_data(), settings=make_settings(tensorboard=True), out=tmp_path / "run")
    check_scalars(tmp_path / "run", result.history)


def test_scalars_of_a_killed_run_are_all_there_once(tmp_path: Path):
    history = make_history(8)
    lost = Scalars(tmp_path)
    lost.write(history[:5])
    lost.close()
    # The kill: the newest file ends in the middle of an event, and its last epochs are trained again from the
    # third.
    (file,) = (tmp_path / "tensorboard").iterdir()
    file.write_bytes(file.read_bytes()[:-7])
    other = [record | {"loss": 2 * record["loss"]} for record in history]
    scalars = Scalars(tmp_path)
    for epoch in range(4, 9):
        scalars.write(other[:epoch])
    scalars.close()
    check_scalars(tmp_path, other)


def test_without_tensorboard_the_setting_is_refused_before_any_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match="tensorboard is not installed"):
        fit(make_net(), make_data(), settings=make_settings(tensorboard=True), out=tmp_path / "run")
    with pytest.raises(SettingError, match="tensorboard is not installed"):
        prepare(Run(tensorboard=True, device="nowhere"))


@pytest.mark.parametrize("is_freed", [True, False])
def test_a_disk_that_fills_up_leaves_whole_events(tmp_path: Path, is_freed: bool):
    history = make_history(500)
    with mounted(tmp_path / "disk") as disk:
        scalars = Scalars(disk)
        scalars.write(history[:3])
        ballast = fill(disk)
        with pytest.raises(OSError, match="No space left"):
            scalars.write(history)
        if is_freed:
            ballast.unlink()
            scalars.write(history)
        scalars.close()
        check_scalars(disk, history if is_freed else history[:3])


def test_a_disk_that_is_full_from_the_first_epoch_on_is_told_once_and_shows_all_in_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    settings, view = make_settings(epochs=8, tensorboard=True), Listener()
    whole = fit(make_net(), make_data(), settings=make_settings(epochs=8))
    with mounted(tmp_path / "disk") as disk:
        ballast = disk / "ballast"

        def fill_then_free(value):
            ballast.unlink() if ballast.exists() else fill(disk)
            return value

        result = fit(
            make_net(),
            make_data(),
            settings=settings,
            loss=Counter({2, 20}, fill_then_free),
            out=disk / "run",
            view=view,
        )
        check_scalars(disk / "run", result.history)
    assert sum("No space left" in line for line in view.lines) == 1
    assert sum("disk space is available again" in line for line in view.lines) == 1
    assert same_weights(result.model, whole.model)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_place_that_can_not_be_written_is_told_once_and_ends_nothing(tmp_path: Path):
    def spoil(value):
        (tmp_path / "run" / "tensorboard").write_text("a file where a folder should be")
        return value

    view, settings = Listener(), make_settings(tensorboard=True)
    result = fit(
        make_net(), make_data(), settings=settings, loss=Counter({1}, spoil), out=tmp_path / "run", view=view
    )
    assert sum("can't write into" in line for line in view.lines) == 1
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == len(result.history) == 6
    assert (tmp_path / "run" / "small" / "model.safetensors").is_file()


def test_without_a_folder_the_setting_is_refused():
    with pytest.raises(SettingError, match=r"^tensorboard needs a folder to write to[^\n]*$"):
        fit(make_net(), make_data(), settings=make_settings(tensorboard=True))
