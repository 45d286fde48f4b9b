"""The report page in headless Chromium.

All pictures are there at any width, in light and dark, and it asks nobody for anything.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import Browser, browsing
from support.finished import make_report
from support.runs import make_data, make_net, make_settings
from trainonce.runs.report.charts import Course, Level, Series, line_chart
from trainonce.runs.report.facts import baseline_of
from trainonce.runs.report.page import render_page
from trainonce.runs.report.writing import write_comparison, write_report
from trainonce.training import fit

pytestmark = pytest.mark.timeout(600)
needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")

BOXES = """
[...document.querySelectorAll('svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const drawn = svg.querySelectorAll('path, rect').length;
  return {left: box.left, right: box.right, width: box.width, height: box.height, drawn: drawn};
})
"""
OVERLAPS = """
[...document.querySelectorAll('svg.chart, figcaption')].flatMap(place => {
  const words = [...place.querySelectorAll('text, .key')]
    .map(word => [word.textContent, word.getBoundingClientRect()]);
  return words.flatMap(([one, a], index) => words.slice(index + 1)
    .filter(([_, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
    .map(([other]) => one + ' / ' + other));
})
"""
CUT_OFF = (
    "[...document.querySelectorAll('.card, .panel, figure, td, h1')].filter(e => e.scrollWidth > "
    "e.clientWidth + 1).map(e => e.textContent)"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    names = {
        "model": "timm:a_model_with_a_very_long_name_patch16_clip_quickgelu_224",
        "data": "folder:/a/long/path/to/a/folder/of/images",
    }
    settings = make_settings(epochs=12)
    report: dict[str, Any] = dict(fit(make_net(), make_data(), settings=settings, out=folder).report)
    report["config"] = names | report["config"]
    report["baseline"] = baseline_of(report)
    wide = {"total": 1280, "alive": 640, "kept": list(range(0, 1280, 2))}
    report["layers"] = [
        layer | wide | {"name": f"backbone.stages.2.blocks.11.{layer['name']}"} for layer in report["layers"]
    ]
    return write_report(folder, report)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@needs_chromium
@pytest.mark.parametrize("width", [320, 400, 800, 1400])
def test_every_picture_is_there_and_nothing_is_asked_for(
    page: Path, browser: Browser, width: int, tmp_path: Path
):
    browser.open(page, width=width)
    boxes = browser.evaluate(BOXES)
    assert len(boxes) == 5 + 2 + 1, "five charts, two layers, one heat map"
    for box in boxes:
        assert box["width"] > 50
        assert box["height"] > 5
        assert box["left"] >= 0
        assert box["right"] <= width
        assert box["drawn"] > 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(OVERLAPS) == []
    assert browser.evaluate(CUT_OFF) == []
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    browser.photograph(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000


@pytest.fixture(scope="module")
def comparison(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve runs, more than there are colors."""
    reports = []
    for number in range(12):
        report = make_report(
            {"model": "cifar:resnet20", "data": "digits", "keep_flops": 0.1 * number, "lr": number}
        )
        report["after"] |= {"macs": 100_000_000 * number, "top1": 60.0 + 3 * number}
        reports.append(report)
    folders = [Path("runs") / f"a-run-with-quite-a-long-name-{number}" for number in range(12)]
    return write_comparison(tmp_path_factory.mktemp("pages") / "comparison.html", folders, reports)


@needs_chromium
@pytest.mark.parametrize("width", [320, 400, 800, 1400])
def test_a_comparison_fits_any_width(comparison: Path, browser: Browser, width: int):
    browser.open(comparison, width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('.point').length") == 12
    for box in browser.evaluate(BOXES):
        assert box["left"] >= 0
        assert box["right"] <= width
    # Many settings of many runs are scrolled in their own panel.
    assert browser.evaluate(CUT_OFF.replace(".panel,", ".panel:not(.wide),")) == []
    assert browser.requests == [comparison.as_uri()]
    assert browser.complaints == []


@needs_chromium
def test_light_and_dark_are_readable(page: Path, browser: Browser):
    """Text and background differ in brightness as the guidelines for the web ask for, 4.5 to 1."""
    seen = {}
    for is_dark in (False, True):
        browser.open(page, width=400, is_dark=is_dark)
        for place, behind in (
            ("h1", "body"),
            ("p", "body"),
            (".card .after", ".card"),
            (".card .note", ".card"),
            (".verdict", "body"),
            (".remarks li", "body"),
            ("pre", "pre"),
            (".costs td", ".panel"),
            (".costs .kind", ".panel"),
            (".default", ".panel"),
            (".keys .key.accent", "figure"),
        ):
            ink = browser.evaluate(f"getComputedStyle(document.querySelector({place!r})).color")
            paper = browser.evaluate(f"getComputedStyle(document.querySelector({behind!r})).backgroundColor")
            high, low = sorted((brightness(ink), brightness(paper)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (place, is_dark, ink, paper)
            seen[place, is_dark] = brightness(paper)
    assert seen["h1", False] > 0.8
    assert seen["h1", True] < 0.05


@needs_chromium
def test_a_page_that_asks_and_complains_is_found_out(browser: Browser, tmp_path: Path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<body style="width: 900px"><img src="picture.png"><script>console.error("no")</script><svg '
        'class="chart"></svg>'
    )
    browser.open(bad, width=400)
    assert browser.requests == [bad.as_uri(), (tmp_path / "picture.png").as_uri()]
    assert browser.complaints
    assert browser.evaluate("document.documentElement.scrollWidth") > 400
    assert browser.evaluate(BOXES)[0]["drawn"] == 0


def brightness(colour: str) -> float:
    """The relative luminance of `rgb(r, g, b)`."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_a_chart_holds_all_of_its_values_or_all_but_the_wild_start():
    values = [1000.0, 900.0, *(float(10 + epoch % 3) for epoch in range(38))]
    chart = {
        skips: line_chart("Loss", [Series("loss", values, "accent")], skips_start=skips)
        for skips in (False, True)
    }
    assert ">1000</text>" in chart[False]
    assert ">1000</text>" not in chart[True]
    assert ">12</text>" in chart[True]
    # What lies beyond the frame is cut off there, and not drawn along its edge.
    assert 'clip-path="url(#frame-loss)"' in chart[True]
    assert 'id="frame-loss"' in chart[True]


def test_what_is_compared_with_is_named_beside_the_title():
    chart = line_chart(
        "FLOPs kept", [Series("kept", [100.0, 45.0], "third")], levels=[Level("budget <45 %>", 45.0)]
    )
    assert '<span class="key compared">budget &lt;45 %&gt;</span>' in chart


def test_both_cuts_are_marked_where_they_were(page: Path):
    found = json.loads((page.parent / "report.json").read_text(encoding="utf-8"))
    cuts, per_epoch = found["schedule"]["cuts"], found["schedule"]["steps_per_epoch"]
    assert len(cuts) == 2
    assert cuts[0] < cuts[1] == found["schedule"]["phases"]["small"]
    text = page.read_text(encoding="utf-8")
    charts = text.split('<svg class="chart"')[1:]
    assert len(charts) == 5
    for chart in charts:
        assert chart.count('<g class="cut">') == 2
        for number, step in enumerate(cuts, start=1):
            assert f"<title>cut {number} at epoch {step / per_epoch:.1f}</title>" in chart
    assert f"first at step {cuts[0]:,} (" in text
    assert f"and then at step {cuts[1]:,} (" in text


def test_a_cut_is_marked_at_its_place_on_the_axis():
    chart = str(line_chart("Loss", [Series("loss", [4.0, 3.0, 2.0, 1.0], "accent")], Course(cuts=[1.0, 3.0])))
    points = [float(part.split(" ")[0]) for part in chart.split('d="M')[1].split('"')[0].split("L")]
    marks = [float(part.split('"')[0]) for part in chart.split('<line x1="')[1:]]
    assert marks == [points[0], points[2]]


def test_the_dense_run_is_a_curve_beside_the_small_one(page: Path):
    accuracy, loss = page.read_text(encoding="utf-8").split('<svg class="chart"')[1:3]
    for chart, label in ((accuracy, "dense"), (loss, "dense validation")):
        assert '<path class="curve second" d="M' in chart
        assert f"<title>{label}</title>" in chart
    # Of an older report only the dense run's accuracy is known.
    old = make_report() | {"baseline": {"top1": 91.0}}
    assert "dense 91.00 %" in render_page(old)


def test_settings_that_were_changed_come_first_with_their_defaults():
    report = make_report() | {"changed": {"epochs": 100, "keep_flops": None}}
    page = render_page(report)
    shown, _, folded = page.partition("<h2>Settings</h2>")[2].partition("<details>")
    assert "<td>epochs</td><td>4 <span" in shown
    assert "default 100" in shown
    assert "<td>keep_flops</td><td>0.5 <span" in shown
    assert "<td>model</td><td>cifar:resnet20</td>" in shown
    assert "<td>seed</td>" not in shown
    assert "<td>seed</td><td>0</td>" in folded.partition("</details>")[0]


def test_a_run_writes_down_which_settings_were_changed(page: Path):
    found = json.loads((page.parent / "report.json").read_text(encoding="utf-8"))
    assert found["changed"] == {
        "keep_flops": None,
        "epochs": 100,
        "batch_size": None,
        "lr": 0.1,
        "save_minutes": 10.0,
    }


def test_an_older_report_has_a_page_without_what_it_does_not_know():
    page = render_page(make_report())
    assert "Cost per layer" not in page
    assert "default" not in page.partition("<h2>Settings</h2>")[2]
    # It knows its last cut only.
    assert page.count("<title>cut 1 at epoch 3.0</title>") == 5
    assert "cut 2" not in page
