"""Runs on folders of photos, begun and interrupted, and changes to the photos."""

import os
from pathlib import Path

import pytest

from support.runs import Counter, interrupt, make_net, make_settings
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.errors import RunInterruptedError
from trainonce.training import fit

SETTINGS = make_settings(epochs=3)


def opened(folder: Path, **options):
    return open_data(f"folder:{folder}", DataOptions(image_size=8, **options))


def start(data, out: Path) -> None:
    """A run that is interrupted in its second epoch."""
    with pytest.raises(RunInterruptedError):
        fit(make_net(), data, settings=SETTINGS, loss=Counter({7}, interrupt), out=out)


def resume(data, out: Path):
    return fit(make_net(), data, settings=SETTINGS, out=out, resume=True)


def rename_class(folder: Path) -> None:
    (folder / "dog").rename(folder / "hund")


def replace_contents(folder: Path) -> None:
    """Of one file, in the same number of bytes and with the same times."""
    path = folder / "ant" / "ant5.png"
    times, content = path.stat(), bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


WORDS = ["--model", "cifar:resnet20", "--keep-flops", "1", "--epochs", "1", "--batch-size", "16", "--quiet"]
