"""Nothing is assumed about the machine.

When it was started, its locale, its home, its temporary folder, its number of cores.
"""

import ast
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.moments import moment
from support.runs import make_data, make_net, make_settings
from trainonce.runs.report.live import Lines
from trainonce.training import fit

ROOT = Path(__file__).parents[2]
ORIGINS = [0.0, 1e-3, 12.0, 1e9, 1e12]
"""Seconds that a monotonic clock may show when a run begins; at boot it is near zero."""


@pytest.fixture
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """The clock of a machine that was started so many seconds ago."""
    real, begun = time.monotonic, time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: request.param + real() - begun)
    return request.param


@pytest.mark.parametrize("clock", ORIGINS, indirect=True)
def test_the_first_moment_and_the_last_are_shown_whatever_the_clock_says(clock: float):
    stream = io.StringIO()
    lines = Lines(stream, seconds=1000)
    for step in range(1, 101):
        lines.show(moment(step=step))
    shown = stream.getvalue().splitlines()
    assert [line.split()[3] for line in shown] == ["1/100", "100/100"]


@pytest.mark.parametrize("clock", ORIGINS, indirect=True)
def test_a_run_saves_by_the_minute_whatever_the_clock_says(clock: float, tmp_path: Path):
    settings = make_settings(epochs=2, keep_flops=1, save_minutes=1000.0, save_epochs=0)
    stream = io.StringIO()
    result = fit(
        make_net(), make_data(), settings=settings, out=tmp_path / "run", view=Lines(stream, seconds=1000)
    )
    # Only the end is due: no minute has passed, and the epochs don't count.
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000008"]
    assert 0 <= result.report["seconds"] < 1000
    assert "step 8/8" in stream.getvalue()


def text_calls_without_encoding(source: str) -> list[int]:
    """The lines on which a file is opened, read or written as text in the encoding of the locale."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(node.func, "value", None)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        modes = [
            argument.value
            for argument in (*node.args, given.get("mode"))
            if isinstance(argument, ast.Constant)
        ]
        is_file = name in ("read_text", "write_text") or (
            name == "open" and getattr(owner, "id", "") not in ("os", "Image", "tarfile")
        )
        is_binary = any(
            isinstance(mode, str) and set(mode) <= set("rwaxb+") and "b" in mode for mode in modes
        )
        is_talk = "text" in given or "universal_newlines" in given
        if ((is_file and not is_binary) or is_talk) and "encoding" not in given:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "path", sorted((ROOT / "trainonce").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_text_of_the_package_names_its_encoding(path: Path):
    assert text_calls_without_encoding(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "is_wrong"),
    [
        ("p.read_text()", True),
        ("p.read_text(encoding='utf-8')", False),
        ("p.write_text('x')", True),
        ("open('x')", True),
        ("p.open('a')", True),
        ("p.open('rb')", False),
        ("os.open(p, os.O_RDONLY)", False),
        ("subprocess.run(w, text=True)", True),
        ("subprocess.run(w, text=True, encoding='utf-8')", False),
    ],
)
def test_a_text_without_an_encoding_is_found(source: str, is_wrong: bool):
    assert bool(text_calls_without_encoding(source)) == is_wrong


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "examples", "docs"])
def test_what_is_read_in_the_locale_is_plain_ascii(folder: str):
    for path in [
        path for ending in ("py", "md", "toml", "yaml") for path in (ROOT / folder).rglob(f"*.{ending}")
    ]:
        assert path.read_bytes().isascii(), path


STRANGE = """
import os
import sys
from pathlib import Path
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from trainonce.cli import main
sys.exit(main(["train", "digits.resnet20", "--epochs", "1", "--warmup-epochs", "0.1", "--out", sys.argv[1]]))
"""


def test_a_run_on_a_strange_machine(tmp_path: Path):
    """One core, another locale, a read-only home, and folders with spaces and brackets in their names."""
    place, home = tmp_path / "a folder (1) [v2]", tmp_path / "home"
    place.mkdir()
    home.mkdir(mode=0o500)
    locales = (
        subprocess.run(["locale", "-a"], capture_output=True, check=False)
        .stdout.decode("ascii", "replace")
        .split()
    )
    other = next((name for name in locales if "utf8" not in name.lower() and name not in ("C", "POSIX")), "C")
    environment = {
        **os.environ,
        "LC_ALL": other,
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "TMPDIR": str(place),
        "HOME": str(home),
    }
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TZ": "Pacific/Kiritimati"}
    words = [sys.executable, "-c", STRANGE, str(place / "run")]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    assert json.loads((place / "run" / "report.json").read_text(encoding="utf-8"))["history"]
    assert (place / "run" / "report.html").is_file()
    assert str(place / "run" / "small").encode() in done.stdout.replace(b"\n", b"")
