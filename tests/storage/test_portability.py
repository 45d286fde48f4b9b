"""Storage works where POSIX modules such as `fcntl` don't exist."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

for name in ("fcntl", "pwd", "grp", "resource", "termios"):
    sys.modules[name] = None  # importing it raises ModuleNotFoundError, as on Windows

import torch
from trainonce.storage.artifact import load, save
from trainonce.storage.checkpoint import find_newest, save_checkpoint
from pathlib import Path

folder = Path(sys.argv[1])
model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
save(model, folder / "small")
load(folder / "small", into=other)
assert torch.equal(model.weight, other.weight)
save_checkpoint(folder / "checkpoints", 1, {"weight": model.weight}, keep_last=1)
assert torch.equal(find_newest(folder / "checkpoints").state["weight"], model.weight)
"""


def test_models_and_checkpoints_are_saved_and_loaded_without_posix_modules(tmp_path: Path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
