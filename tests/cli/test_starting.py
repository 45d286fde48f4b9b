"""Laws of starting and ending.

Ctrl-C at any moment, a closed pipe or a full disk behind stdout end a command without a traceback.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainonce

ROOT = Path(trainonce.__file__).parents[1]
SLOW_TORCH = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""


def start(*words: str, cwd: Path, path: str = "", **options) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(part for part in (path, str(ROOT)) if part)}
    command = [sys.executable, *words]
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        text=True,
        stderr=subprocess.PIPE,
        check=False,
        timeout=240,
        **options,
    )


@pytest.mark.parametrize(
    "words", [["-m", "trainonce"], ["-c", "import sys; from trainonce.cli import main; sys.exit(main())"]]
)
def test_ctrl_c_while_torch_is_loaded_ends_with_one_word(words: list[str], tmp_path: Path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "torch.py").write_text(SLOW_TORCH)
    done = start(*words, "--version", cwd=tmp_path, path=str(tmp_path / "first"))
    assert (done.returncode, done.stderr) == (130, "trainonce: interrupted\n")


def test_the_package_loads_nothing_before_it_is_used(tmp_path: Path):
    source = (
        "import sys, trainonce; found = {'torch', 'rich', 'yaml'} & set(sys.modules); sys.exit(str(found) if "
        "found else 0)"
    )
    assert start("-c", source, cwd=tmp_path).returncode == 0


def test_every_public_name_has_a_home_and_a_type():
    """The names that a program gets when it asks are those that a type checker sees."""
    tree = ast.parse((ROOT / "trainonce" / "__init__.py").read_text(encoding="utf-8"))
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    homes = {alias.name: node.module for node in checked.body for alias in node.names}
    assert sorted(homes) == sorted(trainonce.__all__)
    for name, module in homes.items():
        assert getattr(trainonce, name) is getattr(__import__(module, fromlist=[name]), name)
    assert set(trainonce.__all__) <= set(dir(trainonce))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = trainonce.no_such_name


@pytest.mark.parametrize("words", [["inspect", "cifar:resnet20"], ["inspect", "cifar:resnet20", "--json"]])
def test_a_pipe_that_is_closed_ends_a_command_silently(words: list[str], tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = start("-m", "trainonce", *words, cwd=tmp_path, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_result_that_finds_no_room_is_told(tmp_path: Path):
    with Path("/dev/full").open("w") as full:
        done = start("-m", "trainonce", "inspect", "cifar:resnet20", cwd=tmp_path, stdout=full)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert done.stderr.count("\n") == 1
