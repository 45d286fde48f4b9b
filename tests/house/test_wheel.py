"""The wheel is complete.

Installed beside nothing but what it declares, it imports, and its command trains.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def declared(name: str, seen: dict[str, Path]) -> dict[str, Path]:
    """What a package needs, and what that needs in turn, each with the folder that it is installed in."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        # Of another platform, or an extra that is not installed.
        return seen
    key = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
    if key in seen:
        return seen
    seen[key] = Path(str(found.locate_file("")))
    for requirement in found.requires or ():
        if "extra ==" not in requirement:
            seen = declared(re.match(r"[\w.-]+", requirement)[0], seen)
    # safetensors[torch] asks for what is there anyway.
    return seen


def lend(name: str, target: Path) -> None:
    """Make an installed package visible in another environment, by links to its files' first folders."""
    found = distribution(name)
    for top in {
        Path(file).parts[0] for file in found.files or () if Path(file).parts[0] not in ("..", "__pycache__")
    }:
        if not (target / top).exists():
            (target / top).symlink_to(Path(str(found.locate_file(top))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    build = tmp_path_factory.mktemp("source") / "trainonce"
    # A copy: setuptools builds in the tree, and other tests read it.
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(build)], check=True)
    subprocess.run([*command, "--wheel-dir", str(out), str(build)], check=True, stdin=subprocess.DEVNULL)
    return next(out.glob("trainonce-*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it declares, and nothing else."""
    place = tmp_path_factory.mktemp("empty") / "environment"
    venv.create(place, with_pip=False, symlinks=True)
    target = next((place / "lib").glob("python*")) / "site-packages"
    for name in declared("trainonce", {}):
        if name != "trainonce":
            lend(name, target)
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
    ]
    subprocess.run([*install, str(wheel)], check=True)
    return place / "bin" / "python"


def run(python: Path, *words: str, cwd: Path) -> str:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        [str(python), *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_wheel_imports_where_nothing_else_is(python: Path, tmp_path: Path):
    source = (
        "import trainonce; [getattr(trainonce, name) for name in trainonce.__all__]; "
        "print(trainonce.__file__)"
    )
    assert str(python.parents[1]) in run(python, "-c", source, cwd=tmp_path)


def test_what_is_not_declared_is_not_there(python: Path, tmp_path: Path):
    source = (
        "import importlib.util as u; print([n for n in ('pytest', 'timm', 'onnx', 'cvxpy') if "
        "u.find_spec(n)])"
    )
    assert run(python, "-c", source, cwd=tmp_path).strip() == "[]"


def test_the_demo_of_the_wheel_trains(python: Path, tmp_path: Path):
    words = ["-m", "trainonce", "train", "digits.resnet20", "--epochs", "1", "--quiet", "--out", "run"]
    run(python, *words, cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
    assert (tmp_path / "run" / "small" / "model.safetensors").is_file()
