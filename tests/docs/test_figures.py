"""Every measurement on README.md and docs/evidence.md is a cell of a committed sheet."""

import re
from pathlib import Path

import pytest

from benchmarks.figures import (
    EVIDENCE,
    HEADING,
    README,
    RESULTS,
    Figure,
    look_up,
    read_figures,
    refreshed,
    section,
    unmarked,
)

TEXT = README.read_text(encoding="utf-8")

SHEET = """# A sheet
## keep_flops = 0.5
| contender | accuracy | FLOPs | ms | usable / exact |
|---|---|---|---|---|
| ours | 91.20; of older code | 0.499 | 26.5 (0.49) | 9 / 8 of ~10 |
| dense | 91.50 | 1.000 | 54.1 (1.00) | 9 / 9 |

## keep_flops = 0.3
| contender | accuracy | FLOPs |
|---|---|---|
| ours | 90.10 | 0.300 |
"""
PAGE = """# A library
| what | figure |
|---|---|
| ours | **<!-- sheet > keep_flops = 0.5 > ours > accuracy -->91.20<!--/-->** |
| dense | <!-- sheet > dense > accuracy -->91.50<!--/-->, <!-- sheet > dense > FLOPs -->1.000<!--/--> |

In prose: <!-- sheet > ours > ms @ in brackets -->0.49<!--/--> of the time,
<!-- sheet > ours > usable / exact @ after the slash -->8 of ~10<!--/--> of
<!-- sheet > ours > usable / exact @ before the slash -->9<!--/-->.
"""
SETTINGS = r"ResNet-\d+|MobileNetV2|CIFAR-10|dense = 1|0\.3 points|0\.5 points|within 1\.05"
SETTINGS += r"|0\.\d+ of the FLOPs|\d epochs|\d seeds|\d CPU cores"
"""What may stand in the README's section without a sheet: names, what was asked for, goals."""

SHOWN = [
    (page, figure) for page in (README, EVIDENCE) for figure in read_figures(page.read_text(encoding="utf-8"))
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sheet.md").write_text(SHEET)
    return tmp_path


@pytest.mark.parametrize(
    ("page", "figure"), SHOWN, ids=[f"{page.name}-{figure.address}" for page, figure in SHOWN]
)
def test_the_pages_agree_with_the_sheets(page: Path, figure: Figure):
    assert figure.value == look_up(figure), (
        f"{figure.sheet}.md has changed: python -m benchmarks.figures writes {page.name} again"
    )


def test_every_committed_sheet_is_read():
    assert {figure.sheet for _, figure in SHOWN} == {sheet.stem for sheet in RESULTS.glob("*.md")}


def test_the_comparison_stands_first_and_is_short():
    assert re.findall(r"^## .*$", TEXT, re.MULTILINE)[0] == HEADING
    rows = [line for line in section(TEXT) if line.startswith("| [")]
    assert 5 <= len(rows) <= 6


def test_every_row_of_the_comparison_links_to_its_sheet():
    for row in [line for line in section(TEXT) if line.startswith("| [")]:
        linked = set(re.findall(r"\(benchmarks/results/([a-z0-9_]+)\.md\)", row))
        assert linked == {figure.sheet for figure in read_figures(row)}


def test_no_number_of_the_comparison_is_without_a_sheet():
    left = re.sub(SETTINGS, "", re.sub(r"\]\([^)]*\)", "", unmarked("\n".join(section(TEXT)))))
    assert [line for line in left.splitlines() if re.search(r"\d", line)] == []


@pytest.mark.parametrize("page", [README, EVIDENCE], ids=lambda page: page.name)
def test_goals_that_a_sheet_misses_are_not_left_out(page: Path):
    """What the page shows of a sheet's bars includes one that is marked NO, where the sheet has one."""
    shown = {figure.sheet for figure in read_figures(page.read_text(encoding="utf-8"))}
    for sheet in sorted(shown & {"accuracy", "ddp"}):
        text = (RESULTS / f"{sheet}.md").read_text(encoding="utf-8")
        missed = set(re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \| NO \|$", text, re.MULTILINE))
        values = {figure.value for owner, figure in SHOWN if owner == page and figure.sheet == sheet}
        assert not missed or values & missed


def test_a_wrong_figure_is_found_and_mended(folder: Path):
    assert [look_up(figure, folder) == figure.value for figure in read_figures(PAGE)] == [True] * 6
    wrong = PAGE.replace("91.20", "99.00").replace(">0.49<", ">0.1<")
    found = [look_up(figure, folder) == figure.value for figure in read_figures(wrong)]
    assert found.count(False) == 2
    assert refreshed(wrong, folder) == PAGE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sheet > dense > accuracy", "other > dense > accuracy", "there is no other.md"),
        ("sheet > dense > accuracy", "sheet > nobody > accuracy", "0 such cells"),
        ("sheet > dense > accuracy", "sheet > dense > loss", "0 such cells"),
        ("sheet > keep_flops = 0.5 > ours", "sheet > ours", "2 such cells"),
        ("sheet > dense > FLOPs", "sheet > FLOPs", "an address is"),
        ("@ in brackets", "@ in the middle", "a part is one of"),
        ("ours > ms @", "ours > FLOPs @", "2 such cells"),
        ("dense > accuracy -->", "dense > accuracy @ after the slash -->", "no such part"),
        ("91.50<!--/-->", "91.50", "are whole"),
        ("<!-- sheet > dense > accuracy -->", "", "are whole"),
    ],
)
def test_a_figure_without_one_cell_is_refused(folder: Path, old: str, new: str, message: str):
    assert old in PAGE
    with pytest.raises(ValueError, match=message):
        refreshed(PAGE.replace(old, new), folder)
