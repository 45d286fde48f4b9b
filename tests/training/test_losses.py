"""A killed worker or a full disk costs a run time and nothing else."""

import logging
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import torch
from safetensors import SafetensorError
from torch.utils.data import DataLoader, Dataset, get_worker_info

import trainonce
from support.disks import fill, mounted
from support.runs import Counter, Listener, Net, make_data, make_net, make_settings, same_weights
from trainonce.data import workers as reading
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.data.workers import read_batches
from trainonce.errors import DataError, RunInterruptedError, WorkerLostError
from trainonce.runs.report.writing import read_report
from trainonce.storage.checkpoint import find_newest, folder
from trainonce.training import fit
from trainonce.training.batches.sources import as_samples


class Mortal(Dataset):
    """Samples whose reading process is killed at sample 37.

    Once, or every time if there is no `scar` to remember it by.
    """

    def __init__(self, pair, scar: Path | None) -> None:
        self.pair, self.scar = pair, scar

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, index: int):
        if index == 37 and get_worker_info() is not None and (self.scar is None or not self.scar.exists()):
            if self.scar is not None:
                self.scar.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.pair[0][index], self.pair[1][index]


def loaded(scar: Path | None, *, num_workers: int):
    train, validation = make_data()
    return DataLoader(Mortal(train, scar), num_workers=num_workers), validation


def test_a_killed_reader_is_told_and_changes_no_bit(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    settings = make_settings(epochs=3)
    whole = fit(make_net(), loaded(None, num_workers=0), settings=settings)
    handler = signal.getsignal(signal.SIGCHLD)
    with caplog.at_level(logging.WARNING, "trainonce"):
        result = fit(make_net(), loaded(tmp_path / "scar", num_workers=1), settings=settings)
    assert (tmp_path / "scar").exists()
    assert same_weights(result.model, whole.model)
    lines = [record.getMessage() for record in caplog.records if "killed" in record.getMessage()]
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert signal.getsignal(signal.SIGCHLD) == handler


def test_readers_that_are_killed_again_and_again_stop_the_run_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reading, "MAX_LOSSES", 0)
    settings = make_settings(epochs=3)
    with pytest.raises(WorkerLostError, match=r"fewer --workers\. Resume with: .* resume=True") as caught:
        fit(make_net(), loaded(None, num_workers=1), settings=settings, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    found = find_newest(tmp_path / "run" / "checkpoints")
    assert found.refused == ()
    result = fit(
        make_net(), loaded(None, num_workers=0), settings=settings, out=tmp_path / "run", resume=True
    )
    assert same_weights(result.model, fit(make_net(), loaded(None, num_workers=0), settings=settings).model)


def test_a_batch_looks_the_same_whichever_process_reads_it():
    class Noise(Dataset):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int):
            return torch.rand(1), torch.tensor([random.random(), numpy.random.rand()], dtype=torch.double)

    draws = [(torch.arange(4 * number, 4 * number + 4), 5) for number in range(3)]
    one, two = (
        list(as_samples(DataLoader(Noise(), num_workers=count), "training").batches(draws))
        for count in (1, 2)
    )
    assert all(
        torch.equal(torch.cat(left, 1), torch.cat(right, 1)) for left, right in zip(one, two, strict=True)
    )


@pytest.mark.parametrize(
    "error",
    [RuntimeError("the worker in this sentence is no process"), EOFError("cut"), FileNotFoundError("gone")],
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_of_the_data_is_not_taken_for_a_killed_reader(
    error: Exception, num_workers: int, caplog: pytest.LogCaptureFixture
):
    class Broken(Dataset):
        def __getitem__(self, index: int):
            raise error

    with pytest.raises(type(error), match=str(error)):
        list(read_batches(Broken(), [0, 1, 2], num_workers=num_workers))
    assert not caplog.records


def test_what_a_reading_process_finds_wrong_arrives_in_one_line(tmp_path: Path):
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            for number in range(4):
                (tmp_path / part / name).mkdir(parents=True, exist_ok=True)
                (tmp_path / part / name / f"{number}.png").write_bytes(b"")
    data = open_data(f"folder:{tmp_path}", DataOptions(image_size=72, num_workers=1))
    with pytest.raises(DataError, match="no image of a batch can be read") as caught:
        list(data.train.batches([(torch.arange(4), 0), (torch.arange(4, 8), 0)]))
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes: room for three checkpoints of the small run, and little more."""
    with mounted(tmp_path / "disk") as disk:
        yield disk


@pytest.mark.parametrize("is_freed", [True, False])
def test_a_full_disk_is_told_once_and_the_last_checkpoint_stays(
    small_disk: Path, is_freed: bool, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    settings, out = make_settings(epochs=8), small_disk / "run"
    whole = fit(make_net(), make_data(), settings=settings)
    ballast = small_disk / "ballast"

    def fill_then_free(value):
        ballast.unlink() if ballast.exists() else fill(small_disk)
        return value

    # Four steps are an epoch, and the controller's losses are counted with theirs: the first checkpoint is
    # there, later ones find no room.
    calls = Counter({8, 20} if is_freed else {8}, fill_then_free)
    view = Listener()
    if is_freed:
        result = fit(make_net(), make_data(), settings=settings, loss=calls, out=out, view=view)
        assert [line for line in view.lines if "disk space is available again" in line]
    else:
        with pytest.raises(ValueError, match="No space left on device") as caught:
            fit(make_net(), make_data(), settings=settings, loss=calls, out=out, view=view)
        assert "\n" not in str(caught.value)
        assert find_newest(out / "checkpoints").refused == ()
        assert read_report(out)["history"]
        assert not (out / "small").exists()
        ballast.unlink()
        result = fit(make_net(), make_data(), settings=settings, out=out, resume=True)
    assert sum("No space left" in line for line in view.lines) == 1
    assert not [path for path in out.rglob("*") if path.name.startswith(".") and path.name != ".lock"]
    assert same_weights(result.model, whole.model)
    assert same_weights(trainonce.load(out / "small", into=Net()), whole.model)
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 8
    # The log of the run is on that disk, too: its own troubles must not be shouted.
    assert "Traceback" not in "".join(capfd.readouterr())


def no_room(*_: object, **__: object) -> None:
    raise SafetensorError("I/O error: No space left on device (os error 28)")


def test_a_signal_on_a_full_disk_says_what_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(value):
        monkeypatch.setattr(folder, "save_file", no_room)
        os.kill(os.getpid(), signal.SIGTERM)
        return value

    view = Listener()
    with pytest.raises(
        RunInterruptedError, match=r"could not be saved: free some disk space first\. Resume with"
    ):
        fit(
            make_net(),
            make_data(),
            settings=make_settings(),
            loss=Counter({7}, interrupt),
            out=tmp_path / "run",
            view=view,
        )
    assert sum("No space left" in line for line in view.lines) == 1
    assert find_newest(tmp_path / "run" / "checkpoints").step == 4
    monkeypatch.undo()
    result = fit(make_net(), make_data(), settings=make_settings(), out=tmp_path / "run", resume=True)
    assert same_weights(result.model, fit(make_net(), make_data(), settings=make_settings()).model)


def test_a_run_that_finds_no_room_at_its_start_names_the_folder(small_disk: Path):
    fill(small_disk)
    place = re.escape(str(small_disk / "run"))
    with pytest.raises(ValueError, match=f"can't write into {place} .*No space left.*Free some space there"):
        fit(make_net(), make_data(), settings=make_settings(), out=small_disk / "run")
