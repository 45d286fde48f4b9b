"""The README's pictures are there, small, and load nothing; a captured terminal is read as it was shown."""

import io
import re
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console
from rich.live import Live

from docs.making.pictures import MAX_BYTES, terminal_picture
from docs.making.screen import shown_lines

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(r'<img src="([^"]+)"', (ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_readme_shows_the_report_and_the_terminal():
    assert sorted(SHOWN) == ["docs/pictures/report.png", "docs/pictures/terminal.svg"]


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_is_small_enough_to_be_cloned(name: str):
    assert 1_000 < (ROOT / name).stat().st_size <= MAX_BYTES


def test_the_terminal_shows_a_run_that_kept_its_budget():
    drawing = (ROOT / "docs" / "pictures" / "terminal.svg").read_text(encoding="utf-8")
    words = re.sub(r"&#160;", " ", "\n".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawing)))
    assert re.search(r"\$ trainonce train .*--keep-flops 0\.\d+", words)
    assert "small model: runs/demo/small" in words
    assert re.search(r"same class on (\d+) of \1 ", words)


def test_the_report_fills_its_picture():
    with Image.open(ROOT / "docs" / "pictures" / "report.png") as picture:
        assert picture.width == 1280
        assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 16


def test_a_drawn_terminal_loads_nothing():
    drawing = terminal_picture(["\x1b[1m$ command\x1b[0m", "plain"]).decode()
    assert "plain" in drawing
    assert re.findall(r"url\((?!#)|<image|@import|\bhref=", drawing) == []
    assert "@font-face" not in drawing


def test_a_live_view_is_read_as_its_last_picture():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=40, legacy_windows=False, color_system=None)
    with Live("one\ntwo\nthree", console=console, auto_refresh=False) as live:
        live.update("four\nfive", refresh=True)
        console.print("said meanwhile")
        live.update("six", refresh=True)
    assert [line.strip() for line in shown_lines(stream.getvalue()) if line.strip()] == [
        "said meanwhile",
        "six",
    ]
