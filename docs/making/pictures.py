"""Makes the two pictures of the README from a real run: the report page and the terminal.

`python -m docs.making.pictures` trains the demo twice, dense and small, and writes docs/pictures/report.png
and docs/pictures/terminal.svg. It needs Chromium for the page.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from docs.making.screen import shown_lines

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
MAX_BYTES = 300_000
COLUMNS = 88
PAGE_SIZE = (1280, 988)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def train(folder: Path, *, recipe: str, keep_flops: str, epochs: int | None) -> list[str]:
    """The dense and the small run in `folder`; what a terminal shows of the small one."""
    length = [] if epochs is None else ["--epochs", str(epochs)]
    run(["train", recipe, "--keep-flops", "1", "--quiet", "--out", "runs/dense", *length], cwd=folder)
    words = ["train", recipe, "--keep-flops", keep_flops, "--out", "runs/demo"]
    output = run([*words, *length], cwd=folder)
    run(["report", "runs/demo", "--baseline", "runs/dense"], cwd=folder)
    return [f"\x1b[1m$ trainonce {' '.join(words)}\x1b[0m", *shown_lines(output)]


def run(words: list[str], *, cwd: Path) -> str:
    """Everything that the command writes, as to a terminal with colors."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FORCE_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "trainonce", *words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    # Not subprocess's text mode: it would turn carriage returns into new lines.
    output = done.stdout.decode("utf-8")
    if done.returncode:
        raise SystemExit(f"trainonce {' '.join(words)} ended with {done.returncode}:\n{output[-2000:]}")
    return output


def terminal_picture(lines: list[str]) -> bytes:
    """The lines as an SVG that loads no font from the network."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)
    drawing = console.export_svg(title="trainonce", theme=DIMMED_MONOKAI)
    drawing = re.sub(r"@font-face\s*\{[^}]*\}", "", drawing)
    drawing = drawing.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    return re.sub(r"[ \t]+$", "", drawing, flags=re.MULTILINE).encode()


def page_picture(page: Path, browser: str) -> bytes:
    """The top of the page as a PNG of few colors."""
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
                f"--screenshot={shot}",
                f"--window-size={PAGE_SIZE[0]},{PAGE_SIZE[1]}",
                page.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        # The other methods merge colors of small areas, such as those of a legend.
        method = Image.Quantize.MAXCOVERAGE
        picture = Image.open(shot).convert("RGB").quantize(256, method=method, dither=Image.Dither.NONE)
        content = io.BytesIO()
        picture.save(content, format="PNG", optimize=True)
        return content.getvalue()


def write(name: str, content: bytes) -> None:
    """Put a picture into docs/pictures, if it is small enough to be committed."""
    if len(content) > MAX_BYTES:
        raise SystemExit(f"{name} has {len(content):,} bytes, more than {MAX_BYTES:,}")
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / name).write_bytes(content)
    print(f"docs/pictures/{name}: {len(content):,} bytes")


def main() -> None:
    """Train, draw, write."""
    parser = argparse.ArgumentParser(prog="python -m docs.making.pictures", description=__doc__)
    parser.add_argument("--recipe", default="digits.resnet20", help="what to train (default: %(default)s)")
    parser.add_argument("--keep-flops", default="0.25", help="the budget (default: %(default)s)")
    parser.add_argument("--epochs", type=int, help="a shorter run, to try it (default: the recipe's)")
    parser.add_argument(
        "--browser", default=next(filter(shutil.which, BROWSERS), None), help="Chromium's path"
    )
    options = parser.parse_args()
    if options.browser is None:
        raise SystemExit("no Chromium found: install it, or pass --browser PATH")
    with tempfile.TemporaryDirectory() as folder:
        lines = train(
            Path(folder), recipe=options.recipe, keep_flops=options.keep_flops, epochs=options.epochs
        )
        write("terminal.svg", terminal_picture(lines))
        write("report.png", page_picture(Path(folder) / "runs" / "demo" / "report.html", options.browser))


if __name__ == "__main__":
    main()
