"""Laws of checkpoints: what is read is what was written, to the bit, or it is refused in one line.

A save is complete or absent.
"""

import json
import math
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from torch import Tensor, nn

from trainonce.errors import CheckpointError
from trainonce.storage.atomic import remove_drafts
from trainonce.storage.checkpoint import find_newest, folder, save_checkpoint
from trainonce.storage.checkpoint.folder import read_checkpoint, write_checkpoint
from trainonce.storage.checkpoint.packing import pack, unpack

FILES = ("state.json", "state.safetensors", "SHA256SUMS")


def equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def random_state(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return torch.randn(rng.randrange(4), rng.randrange(1, 4))
    if kind == 1:
        return torch.tensor(rng.randrange(100))
    if kind == 2:
        return rng.choice([None, True, False, "text", "", 3, -(2**70), "a/b"])
    if kind < 6:
        return rng.choice([rng.random(), 1e-320, math.inf, -math.inf, math.nan, -0.0])
    if kind == 6:
        return [random_state(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return tuple(random_state(rng, depth + 1) for _ in range(rng.randrange(4)))
    keys = rng.sample([1, "1", "a", "a/b", "b", 0, None, True, ""], rng.randrange(5))
    return {key: random_state(rng, depth + 1) for key in keys}


@pytest.mark.parametrize("seed", range(30))
def test_what_is_packed_is_what_is_unpacked(seed: int):
    rng = random.Random(seed)
    state = {str(i): random_state(rng) for i in range(8)}
    data, tensors = pack(state)
    assert equal(unpack(json.loads(json.dumps(data, allow_nan=False)), tensors), state)


def test_a_run_survives_the_disk_to_the_bit(tmp_path: Path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to(
        memory_format=torch.channels_last
    )
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.8, 0.9))
    model(torch.randn(2, 3, 8, 8)).square().mean().backward()
    optimizer.step()
    shared = torch.randn(5)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": [shared[:2], shared[1:3], shared],
        "dtypes": [
            torch.ones(2, dtype=dtype)
            for dtype in (torch.bool, torch.uint8, torch.long, torch.double, torch.bfloat16)
        ],
        "nothing": {},
    }
    write_checkpoint(tmp_path / "one", state)
    again = read_checkpoint(tmp_path / "one")
    assert equal(again["views"], state["views"])
    assert equal(again["dtypes"], state["dtypes"])
    assert equal(again["optimizer"], state["optimizer"])
    assert all(torch.equal(again["model"][name], tensor) for name, tensor in state["model"].items())


def test_a_state_without_tensors_is_fine(tmp_path: Path):
    write_checkpoint(tmp_path / "one", {"step": 3})
    assert read_checkpoint(tmp_path / "one") == {"step": 3}


@pytest.mark.parametrize("value", [object(), {1, 2}, nn.Linear(1, 1), {(1, 2): 3}, b"bytes"])
def test_what_is_no_plain_data_is_refused(tmp_path: Path, value: object):
    with pytest.raises(CheckpointError, match="can't be saved"):
        write_checkpoint(tmp_path / "one", {"a": [value]})
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def two(tmp_path: Path) -> Path:
    for step in (10, 20):
        save_checkpoint(tmp_path, step, {"step": step, "x": torch.randn(7, 3)}, keep_last=3)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_found_and_the_previous_one_used(two: Path, name: str):
    file = two / "step-000000020" / name
    content = file.read_bytes()
    rng = random.Random(0)
    for bit in rng.sample(range(8 * len(content)), min(150, 8 * len(content))):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        file.write_bytes(flipped)
        found = find_newest(two)
        assert found is not None
        assert (found.step, found.state["step"], len(found.refused)) == (10, 10, 1)
        assert "\n" not in found.refused[0]
    file.write_bytes(content)
    assert find_newest(two).step == 20


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_found(two: Path, name: str):
    file = two / "step-000000020" / name
    content = file.read_bytes()
    for length in range(0, len(content), max(1, len(content) // 40)):
        file.write_bytes(content[:length])
        assert find_newest(two).step == 10
    file.unlink()
    assert find_newest(two).step == 10


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"cos\nsystem\n(S'touch HACKED'\ntR.",
        b"{}",
        b"[" * 100_000,
        b'{"format": "trainonce-checkpoint", "version": 2, "state": null}',
        b'{"format": "trainonce-checkpoint", "version": 1, "state": {"code": "import os"}}',
        b'{"format": "trainonce-checkpoint", "version": 1, "state": {"tensor": "../../etc/passwd"}}',
        b'{"format": "trainonce-checkpoint", "version": 1, "state": {"a": 1, "b": 2}}',
        b'{"format": "trainonce-checkpoint", "version": 1, "state": [1]}',
        b'{"format": "trainonce-checkpoint", "version": 1, "state": {"float": "x"}}',
    ],
)
@pytest.mark.parametrize("name", FILES[:2])
def test_foreign_content_is_refused_even_under_a_right_sum(
    two: Path, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(two)
    path = two / "step-000000020"
    (path / name).write_bytes(content)
    folder.seal(path, FILES[:2])
    found = find_newest(two)
    assert found is not None
    assert found.step == 10
    assert not (two / "HACKED").exists()


def test_all_damaged_is_an_error_and_none_at_all_is_not(two: Path, tmp_path_factory: pytest.TempPathFactory):
    for path in two.iterdir():
        (path / "state.json").write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        find_newest(two)
    assert find_newest(tmp_path_factory.mktemp("empty")) is None
    assert find_newest(two / "not" / "there") is None


def test_only_the_last_ones_stay(tmp_path: Path):
    for step in (1, 5, 3, 20, 100):
        save_checkpoint(tmp_path, step, {"step": step}, keep_last=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000020", "step-000000100"]


def test_a_kill_while_an_old_one_is_removed_leaves_no_half_of_it(two: Path, monkeypatch: pytest.MonkeyPatch):
    def killed(path: Path, **_: object) -> None:
        if path.name.endswith(".old") and path.is_dir():
            (path / "state.safetensors").unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(two, 30, {"step": 30}, keep_last=2)
    monkeypatch.undo()
    whole = [path for path in two.iterdir() if not path.name.startswith(".")]
    assert sorted(read_checkpoint(path)["step"] for path in whole) == [20, 30]
    remove_drafts(two)
    assert sorted(path.name for path in two.iterdir()) == ["step-000000020", "step-000000030"]


def test_a_step_can_be_saved_again(two: Path):
    save_checkpoint(two, 20, {"step": "new"}, keep_last=3)
    assert find_newest(two).state == {"step": "new"}
    assert len(list(two.iterdir())) == 2


def test_drafts_of_a_killed_save_are_no_checkpoints_and_can_be_removed(two: Path):
    for ending in ("", ".old"):
        draft = two / f".trainonce-draft-{uuid4().hex}-step-000000030{ending}"
        draft.mkdir()
        (draft / "state.json").write_text("{")
    assert find_newest(two).step == 20
    remove_drafts(two)
    assert len(list(two.iterdir())) == 2


FILL_THE_DISK = """
import resource, sys, torch
from pathlib import Path
from trainonce.errors import CheckpointError
from trainonce.storage.checkpoint import save_checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_checkpoint(Path(sys.argv[1]), 30, {"x": torch.randn(100_000)}, keep_last=1)
except CheckpointError as error:
    print(error)
    sys.exit(2)
"""


def test_a_full_disk_is_told_in_one_line_and_loses_nothing(two: Path):
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(two)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout.count("\n") == 1
    assert "can't write the checkpoint" in done.stdout
    assert sorted(path.name for path in two.iterdir()) == ["step-000000010", "step-000000020"]
    assert find_newest(two).step == 20
